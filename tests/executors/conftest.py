"""An API server of the conformance suite, and a receiver of marks."""

from __future__ import annotations

from tests.executors.receiver import receiver
from tests.kube.conftest import _api_server, api_server

__all__ = ["_api_server", "api_server", "receiver"]
