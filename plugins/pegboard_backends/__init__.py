"""Plugins of kind `backends`: devices and the engines that run on them."""
