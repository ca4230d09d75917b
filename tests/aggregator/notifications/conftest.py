"""The receiver of marks, for tests of the mark mirror."""

from __future__ import annotations

from tests.executors.receiver import receiver

__all__ = ["receiver"]
