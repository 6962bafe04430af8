"""Readers: one module per file format."""
