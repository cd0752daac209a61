"""Register the kits for assertion rewriting; pytest finds this through its entry point."""
