"""Plugins of kind `structured_outputs`: what a client wants, as a constraint."""
