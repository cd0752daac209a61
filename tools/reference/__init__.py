"""The parts of generate_reference.py: one module per page, and what they share."""
