"""Maintenance feeds of each cloud's metadata service: where to read them, and what their documents mean."""
