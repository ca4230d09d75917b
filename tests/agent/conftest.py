from __future__ import annotations

from tests.fuse import fuse_mount

__all__ = ["fuse_mount"]
