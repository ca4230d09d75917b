"""Incidents: one cause each, open until it is cleared; `nodeincidents.nodeguard.dev` in Kubernetes."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from nodeguard.model.finding import Action, Health


class IncidentState(StrEnum):
    """How far the answer to an incident has come.

    `Open`: reported, and nothing is kept away. `Pending`: the grace period of its mark runs; nothing of it is
    written yet. `DryRun`: its check is not enforced: the mark would be set, or would be withheld. `Withheld`:
    it asks for a mark, and a budget, a pause, a hold or a suppressed check forbids it. `Marked`: work is kept
    away. `Advised`: the same without a cluster, where marks are advice. `Recovering`: proven to be over, in
    its soak period. `Resolved`: over.
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
        """The state as options, queries and labels write it: `dry-run`."""
        return "dry-run" if self == IncidentState.DRY_RUN else self.value.lower()

    @property
    def phrase(self) -> str:
        """The state as a page shows it: `dry run`."""
        return self.slug.replace("-", " ")


# The states of a mark that is granted, with a cluster and without.
GRANTED_STATES = frozenset({IncidentState.MARKED, IncidentState.ADVISED})


class Symptom(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A finding that an incident rests on; message and evidence in the machine's own words."""

    check: str
    target: str
    health: Health
    message: str = ""
    evidence: tuple[str, ...] = ()


class Incident(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What nodeguard says of one cause; it can be rebuilt from reports, Nodes and people's decisions.

    name: a hash of the cause, so that it is created once. node, uid: the Node's; domain: empty but for
    domains. resource: the slot that failed. scope: what is kept out, in words a person knows (`node gpu-7`,
    `GPU 0000:3b:00`), empty for nothing. part: what to replace. cause: the check that tells most. word: class
    of the fault. since, changed, resolved: seconds since the epoch; resolved 0 while it is not. times: how
    often it has opened. parent: name of the incident that this one is a part of, empty for none. budget: the
    budget that withholds its mark, with its limit; the used amount, which `detail` names, changes often.
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
    resolved_at: float = 0.0
    occurrences: int = 1
    parent: str = ""
    budget: str = ""

    @property
    def is_open(self) -> bool:
        """Whether it is not over."""
        return self.state != IncidentState.RESOLVED


class ClearAnswer(StrEnum):
    """What became of a clear.

    `waiting`: the node's agent has not answered. `done`: all findings were cleared. `partly`: some of them
    were. `refused`: none was, as when their conditions hold now.
    """

    WAITING = "waiting"
    DONE = "done"
    PARTLY = "partly"
    REFUSED = "refused"


class OperatorDecision(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What people decided of one incident. acknowledged: they know. clear: they ask to clear it; by whom and
    when, in words, which also tell one clear from the next. answer: what became of that, None where it is not
    known; answer_says: the words of the node's agent.
    """

    incident: str
    acknowledged: str = ""
    clear: str = ""
    answer: ClearAnswer | None = None
    answer_message: str = ""
