"""Incidents of what nodes share, one for each cause: a domain to blame, or a check that is held. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b

from nodeguard.fleet.decide.domain_decision import DomainDecision
from nodeguard.fleet.diagnosis.explanation import clearing_message, degraded_message, suppressed_message
from nodeguard.fleet.diagnosis.results import SuppressedCheck
from nodeguard.model.diagnosis import DiagnosisPolicy
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import Incident, IncidentState, Symptom
from nodeguard.model.instant import Instant

# What the resource of an incident begins with that is of a check.
CHECK = "check/"

_SYMPTOMS = 8

# What a domain shows, as told by one of its nodes, by uid and classes of faults.
FindSymptom = Callable[[str, tuple[str, ...]], Symptom | None]


def domain_incident(
    cover: DomainDecision, members: int, rule: DiagnosisPolicy, sight: FindSymptom, now: Instant
) -> Incident:
    """The incident of a domain that is to blame, without what is known of it from before. members: all of its
    nodes, those that may not vote, too.
    """
    one = cover.degraded
    scope = f"{members} nodes of {one.domain}"
    why = cover.reason
    if cover.state == IncidentState.DRY_RUN:
        done = f"keep new gang work off {scope}"
        why = f"would not {done}: {cover.reason}" if cover.reason else f"would {done}"
    return Incident(
        name=shared_incident_name(one.name),
        node="",
        uid="",
        target=one.name,
        cause=one.fault_classes[0] if one.fault_classes else "domain-degraded",
        health=Health.SUSPECT,
        state=cover.state,
        first_seen=now.wall - (now.mono - one.began),
        last_transition=0.0,
        domain=one.domain,
        scope=scope,
        fault_class=one.topology,
        action=Action.CONTACT_SUPPORT,
        message=degraded_message(one, rule),
        detail="; ".join(filter(None, (why, clearing_message(one, rule)))),
        symptoms=tuple(_symptoms(one.voters, one.fault_classes, sight)),
    )


def check_incident(one: SuppressedCheck, sight: FindSymptom, now: Instant) -> Incident:
    """The incident of a check that is held."""
    return Incident(
        name=shared_incident_name(f"{CHECK}{one.check}"),
        node="",
        uid="",
        target=f"{CHECK}{one.check}",
        cause=one.check,
        health=Health.WARNING,
        state=IncidentState.OPEN,
        first_seen=now.wall - (now.mono - one.since),
        last_transition=0.0,
        fault_class="held",
        component=one.domain,
        action=Action.MONITOR,
        message=f"check {one.check} is suppressed: {suppressed_message(one)}",
        detail="it marks nothing new, and its marks that no other source confirms are released",
        symptoms=tuple(_symptoms(one.nodes, (), sight)),
    )


def shared_incident_name(what: str) -> str:
    """Name of the incident of a domain or check, the same whoever tells of it."""
    words = re.sub(r"[^a-z0-9-]+", "-", what[:200].lower()).strip("-")
    return f"{words}-{blake2b(what.encode(), digest_size=4).hexdigest()}"


def _symptoms(uids: Iterable[str], kinds: tuple[str, ...], sight: FindSymptom) -> Iterator[Symptom]:
    found = 0
    for uid in uids:
        one = sight(uid, kinds)
        if one is not None:
            yield one
            found += 1
        if found == _SYMPTOMS:
            return
