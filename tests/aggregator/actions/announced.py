"""A drain with notice in virtual time: the rule of the candidate has a deadline ten minutes after the notice."""

from __future__ import annotations

from msgspec.structs import replace

from nodeguard.fleet.act.drain_notice import WRITE_WITHIN
from nodeguard.model.action import ActionKind, NodeAction
from nodeguard.model.eviction import Eviction, EvictionState, PodNotice
from nodeguard.model.pod import NodePod
from tests.aggregator.actions.drain_replicas import NODE
from tests.aggregator.actions.drain_scene import Scene

AFTER = 600.0


class Announced(Scene):
    """A faulty GPU with the four pods of a gang, which are evicted some time after a notice."""

    def __init__(self, minimum: int = 0) -> None:
        super().__init__(minimum)
        self.candidates[NODE] = replace(self.candidates[NODE], after=AFTER)
        self.began = self.now
        self.refusal = ""
        self.conflicts = self.asked = 0

    def write_notice(self, pod: NodePod, notice: PodNotice, *, is_dry_run: bool) -> Eviction:
        self.asked += is_dry_run
        if self.conflicts and not is_dry_run:
            self.conflicts -= 1
            return Eviction(EvictionState.CHANGED, "the pod has been modified")
        if self.refusal:
            return Eviction(EvictionState.FORBIDDEN, self.refusal)
        return super().write_notice(pod, notice, is_dry_run=is_dry_run)

    @property
    def records(self) -> list[NodeAction]:
        """Return the notices, in the order of their attempts."""
        found = [action for action in self.stored() if action.kind == ActionKind.DRAIN_NOTICE]
        return sorted(found, key=lambda action: action.attempt)

    @property
    def drains(self) -> list[NodeAction]:
        return [action for action in self.stored() if action.kind == ActionKind.DRAIN]

    @property
    def shown_times(self) -> set[str]:
        """Return what the pods of the gang show that are not terminating."""
        return {pod.drain_at for _, pod in self.pods.values() if pod.labels and not pod.is_terminating}

    def gang_uids(self) -> list[str]:
        return [uid for uid, (_, pod) in self.pods.items() if pod.labels]

    @property
    def first_eviction(self) -> float:
        return min(self.evicted.values(), default=0.0)

    def agree(self, *names: str) -> None:
        for uid, (_, pod) in tuple(self.pods.items()):
            if pod.key.name in names:
                self.change(uid, agrees_to_leave=True)

    def play_out(self) -> None:
        """Play until well after the deadline of a notice that was recorded just now."""
        self.play(AFTER + WRITE_WITHIN + 120.0)
