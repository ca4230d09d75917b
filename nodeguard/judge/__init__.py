"""Findings, windows and the verdict. Pure."""
