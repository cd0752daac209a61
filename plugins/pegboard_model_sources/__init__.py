"""Plugins of kind `model_sources`: addresses of models turned into local files."""
