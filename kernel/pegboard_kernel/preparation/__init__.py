"""Preparing models: fetching, converting, trying and putting in place, without half results."""
