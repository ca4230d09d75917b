"""What the fleet half keeps of what an agent said, with its receiver's clock put to it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from nodeguard.model.finding import Health, Knowledge
from nodeguard.model.instant import Instant
from nodeguard.model.mark import Cause
from nodeguard.wire.report import Active, Blind, InOrder, Inventory, Report

# Findings of one report that count, the worst first: an agent sends no more. Words that are kept once, by
# their letters.
_FINDINGS = 128
_LETTERS = 4_000_000

# Seconds from a verdict to its sending beyond which a report tells of the past.
_LATE = 10.0


class Heard(Struct, frozen=True):
    """The latest report of a node.

    at: seconds of the receiver's monotonic clock when it came. began: seconds since the epoch, by the
    receiver's clock, at which each of the findings did, in their order. proven: see `proves`. late: whether
    it tells of some time ago, as what waited while nobody heard does: until the node says that it is so
    still, nothing is marked for it, and nothing given back.
    """

    at: float
    boot_id: str
    digest: str
    health: Health
    knowledge: Knowledge
    findings: tuple[Active, ...]
    began: tuple[float, ...]
    proven: tuple[InOrder, ...]
    unread: tuple[Blind, ...]
    inventory: Inventory
    agent: str
    catalogue: str
    leaving: bool
    late: bool = False


class Shared:
    """Things that are equal on many nodes, kept once: nodes of one model are in order in the same way."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._letters = 0

    def __call__(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """The same words, as they were first given."""
        known = self._kept.get(words)
        if known is not None:
            return known
        if self._letters > _LETTERS:
            self._kept.clear()
            self._letters = 0
        self._letters += sum(map(len, words)) + 64 * (len(words) + 1)
        return self._kept.setdefault(words, words)


def heard(report: Report, instant: Instant, shared: Shared) -> Heard:
    """What is kept of a report that came at an instant."""
    findings = report.findings[:_FINDINGS]
    return Heard(
        at=instant.mono,
        boot_id=report.boot_id,
        digest=report.digest,
        health=report.health,
        knowledge=report.knowledge,
        findings=findings,
        # An age may be any number: nothing began before time did.
        began=tuple(max(0.0, instant.wall - report.age - one.age) for one in findings),
        proven=tuple(InOrder(shared(one.checks), shared(one.slots)) for one in report.proven),
        unread=report.unread,
        inventory=report.inventory,
        agent=report.agent,
        catalogue=report.catalogue,
        leaving=report.leaving,
        late=report.age > _LATE,
    )


def proves(one: Heard, cause: Cause) -> bool:
    """Whether a node's own check says, of every slot of a cause, that nothing is wrong there any more."""
    if one.late or tells_of(one.findings, cause):
        return False
    places = set(cause.slots or (cause.target,))
    for group in one.proven:
        if cause.check in group.checks:
            places.difference_update(group.slots)
    return not places


def tells_of(findings: Iterable[Active], cause: Cause) -> bool:
    """Whether the check of a cause still finds something where the cause is."""
    places = {cause.target, *cause.slots}
    return any(
        one.check == cause.check and (one.target in places or not places.isdisjoint(one.slots))
        for one in findings
    )
