"""Contracts between structs: what one has arrives in the others, or is left out on purpose."""
