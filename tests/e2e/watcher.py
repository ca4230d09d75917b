"""What others see of Nodes: each state that a watch tells, in order, and when it did."""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from collections.abc import Callable
from typing import Self

import msgspec
from msgspec import Struct, field

from nodeguard.model.mark import EPOCH_ANNOTATION
from nodeguard.model.node import PREFIX, Taint
from tests.controlplane.cluster import Cluster
from tests.waiting import PATIENCE


class State(Struct, frozen=True):
    """A Node at a moment. at: seconds of the monotonic clock at which it was told of. marks: nodeguard's taints.
    epoch: the lease's, that was written last.
    """

    at: float
    node: str
    version: int
    marks: tuple[str, ...]
    epoch: int
    labels: dict[str, str]


class _Meta(Struct):
    name: str
    version: str = field(name="resourceVersion")
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}


class _Spec(Struct):
    taints: tuple[Taint, ...] = ()


class _Node(Struct):
    metadata: _Meta
    spec: _Spec = field(default_factory=_Spec)


class _Event(Struct):
    type: str
    object: _Node


_DECODER = msgspec.json.Decoder(_Event)


class Watcher:
    """Follows all Nodes in a thread of its own, from one moment on. states: all, in order."""

    def __init__(self, cluster: Cluster) -> None:
        self.states: list[State] = []
        version = cluster.api.get("/api/v1/nodes?limit=1")["metadata"]["resourceVersion"]
        host, port = cluster.url.removeprefix("https://").split(":")
        self._line = http.client.HTTPSConnection(
            host, int(port), context=ssl.create_default_context(cafile=str(cluster.ca))
        )
        head = {"Authorization": f"Bearer {cluster.token}"}
        self._line.request("GET", f"/api/v1/nodes?watch=1&resourceVersion={version}", headers=head)
        self._answer = self._line.getresponse()
        assert self._answer.status == 200
        self._changed = threading.Condition()
        self._over = False
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        assert self._line.sock is not None
        self._line.sock.shutdown(2)
        self._thread.join()
        self._answer.close()
        self._line.close()

    def first(self, which: Callable[[State], bool], begin: int = 0, within: float = PATIENCE) -> State:
        """The first state of a kind after so many, which may be still to come."""
        end = time.monotonic() + within
        with self._changed:
            while True:
                for at in range(begin, len(self.states)):
                    if which(self.states[at]):
                        return self.states[at]
                begin = len(self.states)
                assert self._changed.wait(end - time.monotonic()), f"nothing came in {within:g} s"

    def marked(self) -> dict[str, State]:
        """Nodes that have marks, as they are now, by name."""
        return counted(self.states)

    def _follow(self) -> None:
        try:
            while line := self._answer.readline():
                now = time.monotonic()
                said = _DECODER.decode(line)
                assert said.type in {"ADDED", "MODIFIED", "DELETED"}, line
                with self._changed:
                    self.states.append(_state(said.object, now))
                    self._changed.notify_all()
        except (OSError, ValueError, http.client.HTTPException):
            if not self._over:
                raise


def counted(states: list[State]) -> dict[str, State]:
    """The Nodes that have marks after all these states, by name."""
    latest = {one.node: one for one in states}
    return {name: one for name, one in latest.items() if one.marks}


def most(states: list[State]) -> int:
    """How many Nodes had marks at most, at any moment."""
    marked: set[str] = set()
    highest = 0
    for one in states:
        (marked.add if one.marks else marked.discard)(one.node)
        highest = max(highest, len(marked))
    return highest


def _state(node: _Node, at: float) -> State:
    meta = node.metadata
    marks = tuple(sorted(f"{one.key}={one.value}" for one in node.spec.taints if one.key.startswith(PREFIX)))
    epoch = int(meta.annotations.get(EPOCH_ANNOTATION, "0"))
    return State(at, meta.name, int(meta.version), marks, epoch, meta.labels)
