"""The compiled catalogue: checks, tables and platforms, ready for evaluation."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from nodeguard.model.check import Check
from nodeguard.model.diagnosis import FaultClass
from nodeguard.model.finding import Action
from nodeguard.model.platform import Platform

_Uint32 = Annotated[int, Meta(ge=0, lt=1 << 32)]


class Xid(Struct, frozen=True):
    """One row of the Xid table.

    action, investigate: NVIDIA's immediate and investigatory action as a word of the catalogue; `unknown` if
    NVIDIA's cell is blank. workload: whether an ordinary application can cause it: yes, possible, unlikely,
    no, unknown. topic: groups rows for checks. reports_recovery: first driver branch that also reports a
    recovery action (Xid 154); 0 if none does. ended_by: codes that report the end of what this one reports.
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
    ended_by: tuple[int, ...] = ()


class Sxid(Struct, frozen=True, forbid_unknown_fields=True):
    """One row of the SXid table.

    severity: the driver's severity if it is fixed.
    """

    code: int
    name: str
    block: str = ""
    severity: Literal["fatal", "non-fatal", "contained", "unknown"] = "unknown"
    guide: Literal["always_fatal", "fatal", "non_fatal", "other", "not_listed"] = "not_listed"
    action: str = "unknown"
    note: str = ""


class Nvlink5Rule(Struct, frozen=True, forbid_unknown_fields=True):
    """The rule for one sub-code of Xid 144 to 150: it matches if (intrinfo & mask) == value.

    v1, v2: (mask, value) before driver R575 and since. errstatus: allowed values; empty allows all.
    """

    xid: int
    unit: str
    v1: tuple[_Uint32, _Uint32]
    v2: tuple[_Uint32, _Uint32]
    errstatus: tuple[_Uint32, ...]
    action: str
    investigate: str
    severity: Literal["fatal", "link_fatal", "non_fatal"]
    meaning: str = ""


class Xid74Bits(Struct, frozen=True, forbid_unknown_fields=True):
    """Bits with one meaning in a register of Xid 74.

    register: 1 to 7, in the order of the message. bits: 0 to 31. kind: `ignore` for bits without a meaning.
    action: NVIDIA's word, or a word of the catalogue if NVIDIA has none; see Catalogue.responses.
    """

    register: Annotated[int, Meta(ge=1, le=7)]
    bits: tuple[Annotated[int, Meta(ge=0, le=31)], ...]
    kind: str
    action: str
    meaning: str = ""


class RecoveryAction(Struct, frozen=True, forbid_unknown_fields=True):
    """One value of the GPU recovery action, as NVML and Xid 154 report it.

    name: a short name. remedy: one sentence. text: the text in Xid 154's message; empty if unknown.
    """

    value: int
    name: str
    action: Action
    remedy: str
    text: str = ""


class ActionResponse(Struct, frozen=True):
    """The response to one of NVIDIA's action words.

    verdict: severity, `fatal`, `suspect`, `warning` or `ignored`. action: a value of Action.
    """

    verdict: str
    action: str
    meaning: str = ""


class LogPattern(Struct, frozen=True):
    """A pattern of kernel log lines that become events.

    hint: text in every matching line, tested before the regular expression. signal: the event signal. target:
    kind of the event's target, derived from the groups `pci`, `dev` and `dimm` of the expression; `node` if
    it has none of them. The group `count` is the number of occurrences that a line reports. limiters: names
    by which the kernel reports that it left out lines of the pattern, as in `NAME: 12 callbacks suppressed`.
    """

    id: str
    hint: str
    pattern: str
    signal: str
    target: str
    description: str
    example: str = ""
    limiters: tuple[str, ...] = ()


class ProgramMessage(Struct, frozen=True):
    """A text that programs on GPU nodes print when they fail, or that people write about it.

    title: meaning. pattern: a regular expression, searched without regard to case. cause: `configuration` of
    the job, the node or the cluster, with limits and other software; `either` where the text does not decide
    whether the machine is the cause. first: the first step of a person, in sentences. checks:
    those that fire if the machine is the cause.
    """

    title: str
    pattern: str
    cause: Literal["program", "configuration", "machine", "either"]
    first: str
    checks: tuple[str, ...] = ()


class Word(Struct, frozen=True):
    """A word that nodeguard prints, such as a state or the name of a metric.

    names: the word, then other forms of it; `*` stands for any text. meaning: sentences, with code in
    backquotes.
    """

    names: tuple[str, ...]
    meaning: str


class Alert(Struct, frozen=True, forbid_unknown_fields=True):
    """An alert of nodeguard's rules for Prometheus, as the runbook describes it.

    Texts have code in backquotes. A text with a table has a line for each row of it.
    """

    alert: str
    meaning: str
    """Its severity, when it fires, and what is the matter."""
    look: str
    """Where the cause is found."""
    remedy: str


class Catalogue(Struct, frozen=True):
    """All data of the evaluation.

    responses: by NVIDIA's action word. disabled: checks that a site file disables, by id, with the file name.
    """

    checks: tuple[Check, ...] = ()
    xids: dict[int, Xid] = {}
    sxids: dict[int, Sxid] = {}
    nvlink5: tuple[Nvlink5Rule, ...] = ()
    responses: dict[str, ActionResponse] = {}
    patterns: tuple[LogPattern, ...] = ()
    platforms: tuple[Platform, ...] = ()
    disabled: dict[str, str] = {}
    xid74: tuple[Xid74Bits, ...] = ()
    recovery: dict[int, RecoveryAction] = {}
    fault_classes: tuple[FaultClass, ...] = ()
    program_messages: tuple[ProgramMessage, ...] = ()
    words: tuple[Word, ...] = ()
    alerts: tuple[Alert, ...] = ()

    @property
    def fact_checks(self) -> frozenset[str]:
        """Return the ids of the checks of which the evidence is a fact."""
        return frozenset(check.id for check in self.checks if check.evidence == "fact")

    def response(self, action_word: str) -> ActionResponse:
        """Return the response to an action word; an unknown word gives a warning."""
        return self.responses.get(action_word, _UNKNOWN)


_UNKNOWN = ActionResponse("warning", "monitor")
