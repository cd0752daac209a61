"""The children's side: `python -m pegboard_kernel.child engine|preparer`."""
