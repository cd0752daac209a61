"""Everything a Pegboard plugin imports: types, protocols, hook specs and laws.

Import the module that carries the contract you implement (`pegboard_contracts.formats`,
`pegboard_contracts.backend` ...). This package depends on the standard library, pluggy,
pydantic and msgspec only, so importing it is cheap and works without the server.
"""
