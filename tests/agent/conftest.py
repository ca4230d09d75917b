from __future__ import annotations

from tests.fuse import fuse_mount
from tests.nvml_double import nvml_builds, nvml_double

__all__ = ["fuse_mount", "nvml_builds", "nvml_double"]
