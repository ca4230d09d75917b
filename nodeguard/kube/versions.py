"""Versions of objects: which of two is newer. Pure."""

from __future__ import annotations


def number(version: str) -> int:
    """A resourceVersion as a number; they are decimal and grow. What is none is older than all."""
    return int(version) if version.isascii() and version.isdigit() else -1
