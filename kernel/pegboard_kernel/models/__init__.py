"""Models: the catalogue file, one record per model, and the directory service."""
