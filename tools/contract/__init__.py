"""The checks of `tools/validate_api_contract.py`: HTTP only, nothing of the product."""
