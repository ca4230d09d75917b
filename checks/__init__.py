"""The catalogue's files: checks, tables and platforms."""
