"""Marks on Nodes: what is desired of each, written until it is there."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct

from nodeguard.kube import nodes
from nodeguard.kube.client import STRATEGIC_MERGE_PATCH, version_number
from nodeguard.kube.errors import ApiError
from nodeguard.kube.fenced_client import FencedClient, FencedError
from nodeguard.kube.node_patch import MarkError, check_hold, condition_patch, mark_patch
from nodeguard.kube.write_queue import ConflictError, WriteQueue
from nodeguard.model.mark import DesiredNode
from nodeguard.model.node import Node


class WriteResult(StrEnum):
    """What became of a write.

    `written`: the Node carries what was desired. `failed`: not yet; it is asked again. `gone`: there is no
    such Node any more. `refused`: what was desired must not be written at all. `fenced`: somebody with a
    later lease has written on the Node, and nothing is written any more.
    """

    WRITTEN = "written"
    FAILED = "failed"
    GONE = "gone"
    REFUSED = "refused"
    FENCED = "fenced"


class WriteOutcome(Struct, frozen=True):
    """What became of the marks desired of a Node. why: a sentence, where they are not written. node: as it is
    now, which a watch tells only later; None where it is not known.
    """

    desired: DesiredNode
    result: WriteResult
    reason: str = ""
    node: Node | None = None


class Executor:
    """Writes marks, and the condition after them.

    marks, later: the lanes of both. observed: the Node of a name, as the watch last told; None where it knows
    none. outcome: is told what becomes of each write of marks. wall: seconds since the epoch.
    """

    def __init__(
        self,
        client: FencedClient,
        marks: WriteQueue,
        later: WriteQueue,
        *,
        observed_node: Callable[[str], Node | None],
        on_outcome: Callable[[WriteOutcome], None],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._permit = client
        self._marks = marks
        self._later = later
        self._observed = observed_node
        self._outcome = on_outcome
        self._wall = wall
        # What an answer said of a Node, by uid, until the watch says it too.
        self._answered: dict[str, Node] = {}

    def set_desired(self, desired: DesiredNode) -> None:
        """Have a Node carry what is desired, in place of what was desired of it before."""
        node = self._known(desired)
        if node is not None and node.uid != desired.uid:
            self.forget(desired.uid)
        elif node is not None and self._carries(node, desired):
            self._marks.drop(_key(desired))
            self._want_condition(node, desired)
        else:
            self._marks.put(_key(desired), desired, self._mark)

    def is_in_flight(self, uid: str) -> bool:
        """Whether marks of a Node are being written."""
        return self._marks.is_in_flight(("node", uid))

    def forget(self, uid: str) -> None:
        """Desire nothing of a Node any more: it is gone."""
        self._answered.pop(uid, None)
        self._marks.drop(("node", uid))
        self._later.drop(("condition", uid))

    def _carries(self, node: Node, desired: DesiredNode) -> bool:
        if self._marks.is_in_flight(_key(desired)):
            return False
        try:
            return mark_patch(node, desired, self._permit.epoch) is None
        except MarkError:
            return False

    async def _mark(self, desired: DesiredNode) -> None:
        node = None
        try:
            node = self._known(desired) or await self._read(desired)
            if node is None:
                return
            if node.uid != desired.uid:
                self._gone(desired)
                return
            self._permit.check_epoch(f"Node {node.name}", node.annotations)
            if (patch := mark_patch(node, desired, self._permit.epoch)) is not None:
                check_hold(node, desired)
                node = nodes.decode_node(
                    await self._permit.write("PATCH", f"{nodes.PATH}/{node.name}", patch)
                )
                self._answered[node.uid] = node
        except MarkError as error:
            self._outcome(WriteOutcome(desired, WriteResult.REFUSED, str(error), node))
        except FencedError as error:
            self._outcome(WriteOutcome(desired, WriteResult.FENCED, str(error)))
            raise
        except ApiError as error:
            await self._refused(desired, error)
        else:
            self._outcome(WriteOutcome(desired, WriteResult.WRITTEN, node=node))
            self._want_condition(node, desired)

    async def _refused(self, desired: DesiredNode, error: ApiError) -> None:
        """Raises ConflictError where the Node has changed, and the error where it has not."""
        if error.status == 404:
            self._gone(desired)
            return
        try:
            # Another uid under the same name is a conflict, or with the right version, invalid.
            if error.status in {409, 422} and await self._read(desired) is None:
                return
        except ApiError as second:
            error = second
        if error.status == 409:
            raise ConflictError from None
        self._outcome(WriteOutcome(desired, WriteResult.FAILED, error.message))
        raise error

    def _known(self, desired: DesiredNode) -> Node | None:
        """The Node as the watch or an answer says it, whichever is newer."""
        seen, answered = self._observed(desired.name), self._answered.get(desired.uid)
        if answered is None or (seen is not None and seen.uid != desired.uid):
            return seen
        if seen is not None and version_number(seen.version) >= version_number(answered.version):
            del self._answered[desired.uid]
            return seen
        return answered

    async def _read(self, desired: DesiredNode) -> Node | None:
        """The Node as it is now; None where it is another, or none, of which the outcome is told then."""
        try:
            node = nodes.decode_node(await self._permit.read(f"{nodes.PATH}/{desired.name}"))
        except ApiError as error:
            if error.status != 404:
                raise
            node = None
        if node is None or node.uid != desired.uid:
            self._gone(desired)
            return None
        self._answered[node.uid] = node
        return node

    def _gone(self, desired: DesiredNode) -> None:
        self._answered.pop(desired.uid, None)
        self._outcome(
            WriteOutcome(desired, WriteResult.GONE, f"there is no Node {desired.name} of that uid any more")
        )

    def _want_condition(self, node: Node, desired: DesiredNode) -> None:
        key = ("condition", desired.uid)
        if desired.condition is not None and condition_patch(node, desired.condition, 0.0) is not None:
            self._later.put(key, desired, self._set_condition)
        else:
            self._later.drop(key)

    async def _set_condition(self, desired: DesiredNode) -> None:
        node = self._known(desired)
        if node is None or node.uid != desired.uid or desired.condition is None:
            return
        patch = condition_patch(node, desired.condition, self._wall())
        if patch is None:
            return
        path = f"{nodes.PATH}/{node.name}/status"
        try:
            node = nodes.decode_node(await self._permit.write("PATCH", path, patch, STRATEGIC_MERGE_PATCH))
        except ApiError as error:
            if error.status not in {404, 409}:
                raise
        else:
            self._answered[node.uid] = node


def _key(desired: DesiredNode) -> tuple[str, str]:
    return "node", desired.uid
