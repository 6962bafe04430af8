"""Data sets by name: one module per data set."""
