"""Conformance kits: the laws of each contract as test classes to subclass."""
