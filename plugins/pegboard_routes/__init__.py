"""Plugins of kind `routes`: one module per route family."""
