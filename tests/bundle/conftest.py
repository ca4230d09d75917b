"""Fixtures of the tests of bundles."""

from tests.logs import log

__all__ = ["log"]
