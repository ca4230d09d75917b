"""An API server of the conformance suite, and a receiver of marks."""

from __future__ import annotations

from tests.executors.receiver import receiver
from tests.kube.conftest import api_server

__all__ = ["api_server", "receiver"]
