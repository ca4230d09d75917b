"""Telling receivers of a node what is found on it, and hearing what they ask for."""
