"""Load, validate and compile checks, tables and platforms."""
