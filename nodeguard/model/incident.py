"""Incidents: one cause each, open until resolved; `nodeincidents.nodeguard.dev` in Kubernetes."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from nodeguard.model.finding import Action, Health
from nodeguard.model.hardware import Hardware
from nodeguard.model.instant import parse_or_zero
from nodeguard.model.mark import MARK_OF_HEALTH, Mark


class IncidentState(StrEnum):
    """The state of an incident.

    `Open`: reported; no mark is requested. `Pending`: a mark is requested and in its grace period. `DryRun`:
    the check is not enforced; the mark would be set or withheld. `Withheld`: a mark is requested, and a
    budget, a pause, a hold, a suppressed check or a write that fails prevents it. `Marked`: the mark is
    observed on the Node or device. `Advised`: the same
    without a cluster, where marks are only reported. `Recovering`: the check passes; the mark is in its soak
    period. `Resolved`: the fault is gone.
    """

    OPEN = "Open"
    PENDING = "Pending"
    DRY_RUN = "DryRun"
    WITHHELD = "Withheld"
    MARKED = "Marked"
    ADVISED = "Advised"
    RECOVERING = "Recovering"
    RESOLVED = "Resolved"

    @property
    def slug(self) -> str:
        """Return the state as in options, queries and metric labels: `dry-run`."""
        return "dry-run" if self == IncidentState.DRY_RUN else self.value.lower()

    @property
    def phrase(self) -> str:
        """Return the state as text for people: `dry run`."""
        return self.slug.replace("-", " ")


class WriteState(StrEnum):
    """Why a mark, or its removal, is not on its object. The values are reasons of the condition `Marked`.

    `WritePending`: the write did not succeed yet. `WriteRefused`: the API server refuses it. `NotAccepted`:
    the receiver of the webhook that owns the node has not accepted it yet.
    """

    PENDING = "WritePending"
    REFUSED = "WriteRefused"
    NOT_ACCEPTED = "NotAccepted"


# The states in which the mark is set, or advised without a cluster.
GRANTED_STATES = frozenset({IncidentState.MARKED, IncidentState.ADVISED})


class Symptom(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A finding of an incident; message and evidence as the agent reported them. evidence_omitted: number of
    pieces of evidence beyond these.
    """

    check: str
    target: str
    health: Health
    message: str = ""
    evidence: tuple[str, ...] = ()
    evidence_omitted: int = 0


class Confinement(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The confinement of a suppressed check to the nodes on which it has fired since before a time.

    since: that time, in seconds since the epoch. nodes: number of the nodes of the episode. The findings of
    the nodes have their onsets: an aggregator that starts finds the same nodes by them.
    """

    since: float
    nodes: int


class DiagnosisRecord(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The data with which a new aggregator continues the diagnosis of a domain, a check or a job.

    fault_classes: all for which a domain is degraded. window: seconds within which a check fired on too many
    nodes, or the nodes of a job voted. nodes: number of those of a check. recovering_since: since when so few
    nodes show the fault that the diagnosis will end, in seconds since the epoch; 0 while enough nodes show
    it. first_vote: time of the first vote in a domain or of a job, in seconds since the epoch; it moves when
    the clock jumps; 0 for a check.
    """

    fault_classes: tuple[str, ...] = ()
    window: float = 0.0
    nodes: int = 0
    recovering_since: float = 0.0
    first_vote: float = 0.0


class Incident(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The state of one cause; it can be rebuilt from reports, Nodes and operators' decisions.

    name: includes a hash of the cause, so that it is created once. node, uid: of the Node. domain: path of
    the failure domain, empty for other incidents. target: what failed. scope: what is kept out of scheduling
    as text (`node gpu-7`, `GPU 0000:3b:00`), empty for nothing. component: the hardware to replace. cause:
    the check with the most specific finding. first_seen, last_transition, resolved_at: seconds since the
    epoch; resolved_at is 0 while open. occurrences: how often it was opened. parent: name of the incident
    that includes this one, empty for none. budget: the budget that withholds the mark, with its limit; the
    used amount changes often and is in `detail`. mark: the most severe mark that is set for it, None for none
    or if unknown. highest_health: the worst health since it was opened, None if that is `health`.
    confinement: of a suppressed check that fires on no new nodes; None for all nodes. diagnosis: of a domain,
    a check or a job; None for others. jobs: the jobs on its nodes since it was opened, as far as they were
    read; jobs_omitted: number of further ones. injected: whether operators injected its faults; a real fault
    of the same target has an incident of its own. hardware: of the GPU, as last known. write: why the mark
    is not on its object, or still is; None if it is as the state says. owner: the team that acts on a
    degraded domain; empty if none is named, and for other incidents. symptoms_omitted: number of symptoms
    beyond the listed ones, at the time of `message`.
    """

    name: str
    node: str
    uid: str
    target: str
    cause: str
    health: Health
    state: IncidentState
    first_seen: float
    last_transition: float
    domain: str = ""
    scope: str = ""
    component: str = ""
    fault_class: str = ""
    action: Action = Action.NONE
    message: str = ""
    detail: str = ""
    symptoms: tuple[Symptom, ...] = ()
    symptoms_omitted: int = 0
    resolved_at: float = 0.0
    occurrences: int = 1
    parent: str = ""
    budget: str = ""
    mark: Mark | None = None
    highest_health: Health | None = None
    confinement: Confinement | None = None
    diagnosis: DiagnosisRecord | None = None
    jobs: tuple[str, ...] = ()
    jobs_omitted: int = 0
    injected: bool = False
    hardware: Hardware | None = None
    write: WriteState | None = None
    owner: str = ""

    @property
    def worst_health(self) -> Health:
        """Return the worst health that it has had since it was opened."""
        return self.highest_health or self.health

    @property
    def is_fault(self) -> bool:
        """Return whether it is a fault of its own: not part of another one, and severe enough for a mark. A
        suppressed check is none.
        """
        is_placed = bool(self.node or self.domain)
        return is_placed and not self.parent and self.worst_health in MARK_OF_HEALTH

    @property
    def is_open(self) -> bool:
        """Return whether the incident is not resolved."""
        return self.state != IncidentState.RESOLVED


class ClearAnswer(StrEnum):
    """The agent's answer to a request to clear an incident.

    `waiting`: the agent has not answered. `done`: all findings are cleared. `partly`: some are. `refused`:
    none is, for example because the fault is still present.
    """

    WAITING = "waiting"
    DONE = "done"
    PARTLY = "partly"
    REFUSED = "refused"


class FalseAlarm(Struct, frozen=True, omit_defaults=True):
    """An operator's statement that an incident was no fault: its check was wrong. One that is withdrawn stays
    recorded: a missing one may be that of an incident that is gone.
    """

    by: str
    """Name of the operator."""

    at: str = ""
    """Time of the statement as RFC 3339; empty if it is not recorded."""

    reason: str = ""
    """The operator's text; empty for none."""

    withdrawn: bool = False
    """Whether it withdraws the earlier statement."""

    @property
    def text(self) -> str:
        """Return who stated it, when and why, as text for people."""
        time = f" at {self.at}" if self.at else ""
        return f"{self.by}{time}{f': {self.reason}' if self.reason else ''}"


class OperatorDecision(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Operators' decisions on one incident.

    acknowledged: by whom and when. clear: by whom and when the clear was requested; a changed value is a new
    request. answer: the agent's answer, None if unknown; answer_message: its text. false_alarm: the latest
    statement about that; None for none. Both are of the latest occurrence: one that begins removes them.
    """

    incident: str
    acknowledged: str = ""
    clear: str = ""
    answer: ClearAnswer | None = None
    answer_message: str = ""
    false_alarm: FalseAlarm | None = None

    @property
    def is_false_alarm(self) -> bool:
        """Return whether an operator states that it was no fault."""
        return self.false_alarm is not None and not self.false_alarm.withdrawn

    @property
    def cleared_at(self) -> float:
        """Return when the clear was requested, in seconds since the epoch; 0 if that is not recorded."""
        return parse_or_zero(self.clear.rpartition(" at ")[2])
