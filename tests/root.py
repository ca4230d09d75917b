"""The mark of tests that only root can run: they become another user, or make device nodes."""

from __future__ import annotations

import os

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
