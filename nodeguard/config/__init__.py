"""Configuration files: YAML with line numbers, typed values, units, and errors with file, line and field."""
