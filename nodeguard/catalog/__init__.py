"""The catalogue: checks, tables and platforms, loaded from YAML, validated and compiled."""
