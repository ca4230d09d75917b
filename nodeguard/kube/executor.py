"""Executor for marks on Nodes: writes the desired marks until each Node has them, then the condition."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct

from nodeguard.executors.kube.desired import DesiredNode
from nodeguard.fleet.decide.observed_marks import WriteError
from nodeguard.kube import nodes
from nodeguard.kube.client import STRATEGIC_MERGE_PATCH, version_number
from nodeguard.kube.errors import ApiError, is_refusal
from nodeguard.kube.fenced_client import FencedClient
from nodeguard.kube.node_patch import (
    MarkError,
    check_hold,
    condition_patch,
    is_held_back,
    mark_patch,
    taint_patch,
)
from nodeguard.kube.repeated_writes import RepeatedWrites
from nodeguard.kube.write_queue import ConflictError, WriteQueue
from nodeguard.model.node import Node

# The field of a Node that the server names if its annotations together exceed 256 KiB.
_ANNOTATIONS = "metadata.annotations"

_UNDONE = "another client or an admission webhook changes the {} of {}"


class WriteResult(StrEnum):
    """The result of a write.

    `written`: the Node has the desired marks. `unchanged`: it had them already. `failed`: not yet; the write
    is retried. `gone`: the Node was deleted. `refused`: the desired marks must not be written.
    """

    WRITTEN = "written"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    GONE = "gone"
    REFUSED = "refused"


class WriteOutcome(Struct, frozen=True):
    """The result of writing a Node's marks. reason: why they are not written. node: as the response
    to the write has it; None if unknown. status: HTTP status of a failed request, 0 for no response. error:
    of a write that is not done. is_record_refused: whether the Node has no room for the record, so that only
    its taints are written. lacks_right: whether the request failed for lack of a right.
    """

    desired: DesiredNode
    result: WriteResult
    reason: str = ""
    node: Node | None = None
    status: int = 0
    error: WriteError | None = None
    is_record_refused: bool = False
    lacks_right: bool = False


class Executor:
    """Writes marks, and the condition after them.

    marks, later: the queues of both. observed_node: returns the Node of a name as the watch last delivered
    it; None for none. on_outcome: called with the outcome of each write of marks.
    """

    def __init__(
        self,
        client: FencedClient,
        marks: WriteQueue,
        later: WriteQueue,
        *,
        observed_node: Callable[[str], Node | None],
        on_outcome: Callable[[WriteOutcome], None],
    ) -> None:
        self._client = client
        self._marks = marks
        self._later = later
        self._observed_node = observed_node
        self._on_outcome = on_outcome
        # Nodes from responses, by uid, until the watch delivers the same version.
        self._responses: dict[str, Node] = {}
        # Of the marks of Nodes: an admission webhook may leave them out, too.
        self._repeats = RepeatedWrites()

    def set_desired(self, desired: DesiredNode) -> None:
        """Write the desired marks of a Node, in place of those that were desired before."""
        node = self._latest(desired)
        if node is not None and node.uid != desired.uid:
            self.forget(desired.uid)
        elif node is not None and self._has_marks(node, desired):
            self._marks.drop(_key(desired))
            self._on_outcome(WriteOutcome(desired, WriteResult.UNCHANGED))
            self._queue_condition(node, desired)
        else:
            self._marks.put(_key(desired), desired, self._write_marks)

    def is_in_flight(self, uid: str) -> bool:
        """Return whether marks of a Node are being written."""
        return self._marks.is_in_flight(("node", uid))

    def forget(self, uid: str) -> None:
        """Stop writing a Node, which was deleted."""
        self._responses.pop(uid, None)
        self._repeats.forget(uid)
        self._repeats.forget(f"{uid}/condition")
        self._marks.drop(("node", uid))
        self._later.drop(("condition", uid))

    def _has_marks(self, node: Node, desired: DesiredNode) -> bool:
        if self._marks.is_in_flight(_key(desired)):
            return False
        try:
            return mark_patch(node, desired, self._client.epoch) is None
        except MarkError:
            return False

    async def _write_marks(self, desired: DesiredNode) -> None:
        node = None
        try:
            node = self._latest(desired) or await self._read(desired)
            if node is None:
                return
            if node.uid != desired.uid:
                self._node_gone(desired)
                return
            self._client.check_node_epoch(f"Node {node.name}", node.annotations)
            if (patch := mark_patch(node, desired, self._client.epoch)) is not None:
                check_hold(node, desired)
                content = desired.taints, desired.state, desired.cordon
                self._repeats.check(desired.uid, content, _UNDONE.format("marks", desired.name))
                path = f"{nodes.PATH}/{node.name}"
                node = nodes.decode_node(await self._client.write("PATCH", path, patch))
                self._responses[node.uid] = node
                self._repeats.record(desired.uid, content)
        except MarkError as error:
            refusal = WriteError(str(error), is_refused=True)
            self._on_outcome(WriteOutcome(desired, WriteResult.REFUSED, str(error), node, error=refusal))
        except ApiError as error:
            await self._handle_error(desired, error)
        else:
            self._on_outcome(WriteOutcome(desired, WriteResult.WRITTEN, node=node))
            self._queue_condition(node, desired)

    async def _handle_error(self, desired: DesiredNode, error: ApiError) -> None:
        """Raise ConflictError if the Node has changed, and the error if it has not."""
        if error.status == 404:
            self._node_gone(desired)
            return
        node = tainted = None
        try:
            # A Node with another uid and this name is a conflict or, with the same version, invalid.
            if error.status in {409, 422}:
                node = await self._read(desired)
                if node is None:
                    return
                if _ANNOTATIONS in error.fields:
                    tainted = await self._write_taints(node, desired)
        except ApiError as second:
            error = second
        except MarkError as refused:
            refusal = WriteError(str(refused), is_refused=True)
            self._on_outcome(WriteOutcome(desired, WriteResult.REFUSED, str(refused), node, error=refusal))
            return
        if error.status == 409:
            raise ConflictError from None
        refusal = WriteError(error.message, is_refusal(error))
        outcome = WriteOutcome(
            desired,
            WriteResult.FAILED,
            error.message,
            tainted,
            error.status,
            refusal,
            is_record_refused=tainted is not None,
            lacks_right=error.lacks_right,
        )
        self._on_outcome(outcome)
        raise error

    async def _write_taints(self, node: Node, desired: DesiredNode) -> Node | None:
        """Write the taints of a Node without room for their record. Returns the Node; None if it is held.
        Raises ApiError, NotPermittedError, MarkError.
        """
        if is_held_back(node, desired):
            return None
        self._client.check_node_epoch(f"Node {node.name}", node.annotations)
        if (patch := taint_patch(node, desired)) is not None:
            node = nodes.decode_node(await self._client.write("PATCH", f"{nodes.PATH}/{node.name}", patch))
            self._responses[node.uid] = node
        self._queue_condition(node, desired)
        return node

    def _latest(self, desired: DesiredNode) -> Node | None:
        """Return the Node from the watch or from a response, whichever is newer."""
        observed, response = self._observed_node(desired.name), self._responses.get(desired.uid)
        if response is None or (observed is not None and observed.uid != desired.uid):
            return observed
        if observed is not None and version_number(observed.version) >= version_number(response.version):
            del self._responses[desired.uid]
            return observed
        return response

    async def _read(self, desired: DesiredNode) -> Node | None:
        """Return the current Node. None if it was deleted or replaced, after the outcome was reported."""
        try:
            node = nodes.decode_node(await self._client.read(f"{nodes.PATH}/{desired.name}"))
        except ApiError as error:
            if error.status != 404:
                raise
            node = None
        if node is None or node.uid != desired.uid:
            self._node_gone(desired)
            return None
        self._responses[node.uid] = node
        return node

    def _node_gone(self, desired: DesiredNode) -> None:
        self._responses.pop(desired.uid, None)
        reason = f"the Node {desired.name} with this uid was deleted"
        self._on_outcome(WriteOutcome(desired, WriteResult.GONE, reason))

    def _queue_condition(self, node: Node, desired: DesiredNode) -> None:
        key = ("condition", desired.uid)
        if desired.condition is not None and condition_patch(node, desired.condition, 0.0) is not None:
            self._later.put(key, desired, self._write_condition)
        else:
            self._later.drop(key)

    async def _write_condition(self, desired: DesiredNode) -> None:
        node = self._latest(desired)
        if node is None or node.uid != desired.uid or desired.condition is None:
            return
        patch = condition_patch(node, desired.condition, time.time())
        if patch is None or is_held_back(node, desired):
            return
        path, repeated = f"{nodes.PATH}/{node.name}/status", f"{node.uid}/condition"
        content = desired.condition.state
        self._repeats.check(repeated, content, _UNDONE.format("condition", node.name))
        try:
            response = await self._client.write("PATCH", path, patch, STRATEGIC_MERGE_PATCH)
            node = nodes.decode_node(response)
        except ApiError as error:
            if error.status not in {404, 409}:
                raise
            # The Node has changed or is gone. A condition that is dropped would stay wrong.
            if await self._read(desired) is not None:
                raise ConflictError from None
        else:
            self._responses[node.uid] = node
            self._repeats.record(repeated, content)


def _key(desired: DesiredNode) -> tuple[str, str]:
    return "node", desired.uid
