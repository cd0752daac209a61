"""What the `scripted` backend is made of."""
