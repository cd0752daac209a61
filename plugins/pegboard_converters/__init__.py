"""Plugins of kind `converters`: downloaded models turned into files that a backend opens."""
