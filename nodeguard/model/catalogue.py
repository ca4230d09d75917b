"""The compiled catalogue: checks, tables and platforms, ready to judge with."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from nodeguard.model.check import Check
from nodeguard.model.platform import Platform


class Xid(Struct, frozen=True):
    """One row of the Xid table.

    action, investigate: NVIDIA's immediate and investigatory action, in the catalogue's own words; `unknown`
    where its cell is blank. workload: whether an ordinary application causes it: yes, possible, unlikely, no,
    unknown. topic: groups rows for checks. reports_recovery: driver branch since which the driver also states
    a recovery action (Xid 154); 0 where it does not.
    """

    code: int
    name: str
    summary: str
    topic: str
    workload: str
    action: str
    investigate: str
    applies_to: tuple[str, ...] = ()
    reports_recovery: int = 0
    notes: tuple[str, ...] = ()


class Sxid(Struct, frozen=True):
    """One row of the SXid table.

    Severity: the driver's, where it is fixed: fatal, non-fatal, contained or unknown.
    """

    code: int
    name: str
    block: str
    severity: str
    guide: str
    action: str
    note: str = ""


class Nvlink5Rule(Struct, frozen=True):
    """How one sub-code of Xid 144 to 150 is read: (intrinfo & mask) == value, and errstatus one of some, or
    any if empty.

    v1 is the layout before driver R575, v2 from R575 on; each is (mask, value).
    """

    xid: int
    unit: str
    v1: tuple[int, int]
    v2: tuple[int, int]
    errstatus: tuple[int, ...]
    action: str
    investigate: str
    severity: Literal["fatal", "link_fatal", "non_fatal"]
    meaning: str = ""


class Xid74Bits(Struct, frozen=True):
    """Bits of one register of an Xid 74 that mean the same.

    register: 1 to 7, in the order of the message. bits: 0 to 31. kind: `ignore` where they mean nothing.
    action: NVIDIA's word, or ours where it has none; see responses.
    """

    register: int
    bits: tuple[int, ...]
    kind: str
    action: str
    meaning: str = ""


class RecoveryAction(Struct, frozen=True):
    """One value of the GPU recovery action, as NVML and Xid 154 report it.

    name: in a few words. action: one of ours. remedy: a sentence. text: Xid 154's words for it; empty where
    they are not known.
    """

    value: int
    name: str
    action: str
    remedy: str
    text: str = ""


class ActionResponse(Struct, frozen=True):
    """What to make of an action word.

    verdict: how it is held, `fatal`, `warning` or `ignored`. action: one of ours.
    """

    verdict: str
    action: str
    meaning: str = ""


class LogPattern(Struct, frozen=True):
    """A line of the kernel log that means something.

    hint: text that every matching line contains, tried before the expression. signal: the event it becomes.
    slot: kind of slot the event belongs to, found from the expression's groups `pci`, `dev`, `dimm`; `node`
    where there is none.
    """

    id: str
    hint: str
    pattern: str
    signal: str
    target: str
    description: str
    example: str = ""


class Catalogue(Struct, frozen=True):
    """Everything that judgement needs to know.

    responses: by NVIDIA's action word. disabled: checks that a site file has switched off, by id, with the
    file's name.
    """

    checks: tuple[Check, ...] = ()
    xids: dict[int, Xid] = {}
    sxids: dict[int, Sxid] = {}
    nvlink5: tuple[Nvlink5Rule, ...] = ()
    link_down_reasons: dict[int, str] = {}
    responses: dict[str, ActionResponse] = {}
    patterns: tuple[LogPattern, ...] = ()
    platforms: tuple[Platform, ...] = ()
    disabled: dict[str, str] = {}
    xid74: tuple[Xid74Bits, ...] = ()
    recovery: dict[int, RecoveryAction] = {}

    def response(self, word: str) -> ActionResponse:
        """Return what to make of an action word; one that the table does not have proves no harm."""
        return self.responses.get(word, _UNKNOWN)


_UNKNOWN = ActionResponse("warning", "watch")
