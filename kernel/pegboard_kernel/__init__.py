"""The kernel: it loads, wires and supervises plugins, and does nothing a user sees."""
