"""The states of objects that a watch of the Kubernetes API delivers, in order and with their times."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable
from typing import Generic, Self, TypeVar

import msgspec
from msgspec import Struct, field

from nodeguard.local.client_tls import client_context
from nodeguard.model.mark import EPOCH_ANNOTATION
from nodeguard.model.node import PREFIX, Taint
from tests.controlplane.cluster import Cluster
from tests.waiting import PATIENCE


class NodeState(Struct, frozen=True):
    """One state of a Node. at: seconds of the monotonic clock at its arrival. marks: taints of nodeguard.

    epoch: of the lease, as written by the last writer.
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

State = TypeVar("State")


class CollectionWatcher(Generic[State]):
    """Watches all objects of a collection in a thread, from its start on, until the server ends the watch: it does so
    when the definition of the objects changes.

    path: of the collection. decode: returns the state of an event, with its arrival in seconds of the monotonic clock.
    states: all of them, in order.
    """

    def __init__(self, cluster: Cluster, path: str, decode: Callable[[bytes, float], State]) -> None:
        self.states: list[State] = []
        self._decode = decode
        version = cluster.api.get(f"{path}?limit=1")["metadata"]["resourceVersion"]
        host, port = cluster.url.removeprefix("https://").split(":")
        self._connection = http.client.HTTPSConnection(
            host, int(port), context=client_context(str(cluster.ca))
        )
        head = {"Authorization": f"Bearer {cluster.token}"}
        self._connection.request("GET", f"{path}?watch=1&resourceVersion={version}", headers=head)
        self._response = self._connection.getresponse()
        assert self._response.status == 200
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        if self._thread.is_alive():
            assert self._connection.sock is not None
            self._connection.sock.shutdown(2)
        self._thread.join()
        self._response.close()
        self._connection.close()

    def first(self, matches: Callable[[State], bool], begin: int = 0) -> State:
        """Return the first matching state, and wait for it. begin: number of states to skip."""
        end = time.monotonic() + PATIENCE
        with self._changed:
            while True:
                for at in range(begin, len(self.states)):
                    if matches(self.states[at]):
                        return self.states[at]
                begin = len(self.states)
                assert self._changed.wait(end - time.monotonic()), f"no matching state within {PATIENCE:g} s"

    def _follow(self) -> None:
        try:
            while line := self._response.readline():
                state = self._decode(line, time.monotonic())
                with self._changed:
                    self.states.append(state)
                    self._changed.notify_all()
        except (OSError, ValueError, http.client.HTTPException):
            if not self._closing:
                raise


class Watcher(CollectionWatcher[NodeState]):
    """Watches all Nodes."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, "/api/v1/nodes", _state)

    def marked(self) -> dict[str, NodeState]:
        """Return the Nodes with marks, by name."""
        return marked_nodes(self.states)


def marked_nodes(states: list[NodeState]) -> dict[str, NodeState]:
    """Return the Nodes with marks after all these states, by name."""
    latest = {state.node: state for state in states}
    return {name: state for name, state in latest.items() if state.marks}


def max_marked(states: list[NodeState]) -> int:
    """Return the largest number of Nodes that had marks at one time."""
    marked: set[str] = set()
    highest = 0
    for state in states:
        (marked.add if state.marks else marked.discard)(state.node)
        highest = max(highest, len(marked))
    return highest


def _state(line: bytes, at: float) -> NodeState:
    event = _DECODER.decode(line)
    assert event.type in {"ADDED", "MODIFIED", "DELETED"}, line
    node, meta = event.object, event.object.metadata
    taints = [taint for taint in node.spec.taints if taint.key.startswith(PREFIX)]
    marks = tuple(sorted(f"{taint.key}={taint.value}" for taint in taints))
    epoch = int(meta.annotations.get(EPOCH_ANNOTATION, "0"))
    return NodeState(at, meta.name, int(meta.version), marks, epoch, meta.labels)
