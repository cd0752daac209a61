"""Plugins of kind `middlewares`: what every request passes."""
