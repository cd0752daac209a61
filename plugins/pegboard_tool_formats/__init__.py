"""Plugins of kind `tool_formats`: how model families write tool calls."""
