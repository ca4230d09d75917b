"""Recordings of what the sources read on one node: their format, reading, and writing."""
