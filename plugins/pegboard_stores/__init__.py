"""Plugins of kind `stores`: where responses and conversations are kept."""
