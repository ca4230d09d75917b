"""The audit log of the API server: each request of the aggregators, with its outcome."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from tests.controlplane.api import Object
from tests.daemonset.manifests import AGGREGATOR, NAMESPACE

_USERS = [f"system:serviceaccount:{NAMESPACE}:{AGGREGATOR}"]

# Only the aggregators: thousands of requests of kubelets and controllers would be written otherwise. Whether an
# eviction is a dry run is in its body.
_POLICY: Object = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "Request", "users": _USERS, "resources": [{"resources": ["pods/eviction"]}]},
        {"level": "Metadata", "users": _USERS},
        {"level": "None"},
    ],
}

_FORBIDDEN = 403

_WRITES = frozenset({"create", "update", "patch", "delete"})

_POD_OF_TOKEN = "authentication.kubernetes.io/pod-name"


class AuditedWrite(NamedTuple):
    """A write of an aggregator that is no dry run. target: namespace and name of the object. pod: of the aggregator.
    code: HTTP status. received, completed: seconds since the epoch.
    """

    target: str
    pod: str
    code: int
    received: float
    completed: float


class Audit:
    """The log in a directory, which exists."""

    def __init__(self, directory: Path) -> None:
        self._policy = directory / "audit-policy.json"
        self._log = directory / "audit.log"
        self._policy.write_text(json.dumps(_POLICY))
        self._log.touch()

    def flags(self) -> Sequence[str]:
        """Return the flags of the API server."""
        return [f"--audit-policy-file={self._policy}", f"--audit-log-path={self._log}"]

    def size(self) -> int:
        """Return the length of the log in bytes."""
        return self._log.stat().st_size

    def requests(self, since: int = 0) -> set[str]:
        """Return what was requested, such as `patch nodes`, without the first `since` bytes of the log."""
        return {_action(event) for event in self._events(since) if "objectRef" in event}

    def counts(self, since: int = 0) -> Counter[str]:
        """Return how often each of them was requested."""
        return Counter(_action(event) for event in self._events(since) if "objectRef" in event)

    def writes(self, since: int = 0) -> Counter[str]:
        """Return how often each kind of object was written, without the lease."""
        return Counter(
            {
                request: count
                for request, count in self.counts(since).items()
                if request.split()[0] in _WRITES and not request.endswith(" leases")
            }
        )

    def sent(self, action: str) -> list[AuditedWrite]:
        """Return the writes of one action, such as `patch leases`, without dry runs."""
        return [
            AuditedWrite(
                f"{event['objectRef']['namespace']}/{event['objectRef']['name']}",
                event["user"]["extra"][_POD_OF_TOKEN][0],
                event["responseStatus"]["code"],
                _seconds(event["requestReceivedTimestamp"]),
                _seconds(event["stageTimestamp"]),
            )
            for event in self._events(0)
            if _action(event) == action
            and "dryRun" not in event.get("requestObject", {}).get("deleteOptions", {})
        ]

    def forbidden(self, since: int = 0) -> list[str]:
        """Return the requests that were refused for a missing right, each with the message."""
        return [
            f"{_action(event)}: {event['responseStatus'].get('message')}"
            for event in self._events(since)
            if event.get("responseStatus", {}).get("code") == _FORBIDDEN
        ]

    def _events(self, since: int) -> list[Object]:
        # The API server may be writing the last line.
        lines = self._log.read_bytes()[since:].rpartition(b"\n")[0].splitlines()
        return [json.loads(line) for line in lines]


def _action(event: Object) -> str:
    target = event.get("objectRef", {})
    resource = "/".join(filter(None, (target.get("resource"), target.get("subresource"))))
    return f"{event['verb']} {resource or event['requestURI']}"


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()
