"""Plugins of kind `reasoning_formats`: how model families mark their reasoning."""
