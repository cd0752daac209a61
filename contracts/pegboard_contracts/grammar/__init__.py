"""Toolbox for everything that guarantees output: grammars in EBNF, from JSON schemas too.

`GrammarBuilder` collects rules, `SchemaTranslator` adds the rules of a JSON schema to one,
`pattern_expression` those of a regular expression. Tool formats put them into their own
call syntax, structured outputs use them whole. The dialect is the engine's: rules
`name ::= expression`, literals in double quotes, classes, `( ) | * + ? {m,n}`.
"""

from pegboard_contracts.grammar.builder import GrammarBuilder, literal
from pegboard_contracts.grammar.patterns import PatternError, pattern_expression
from pegboard_contracts.grammar.schema import SchemaTranslator, schema_error

__all__ = [
    "GrammarBuilder",
    "PatternError",
    "SchemaTranslator",
    "literal",
    "pattern_expression",
    "schema_error",
]
