"""Faults of components, and those that fail again and again. They decide no mark. Pure."""
