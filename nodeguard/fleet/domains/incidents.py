"""Incidents of what nodes share, one for each cause: a domain to blame, or a check that is held. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b

from nodeguard.fleet.blame.blamed import Held
from nodeguard.fleet.domains.covering import Cover
from nodeguard.fleet.domains.words import until_cleared, why_blamed, why_held
from nodeguard.model.blame import Blame
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import Incident, State, Symptom
from nodeguard.model.instant import Instant

# What the resource of an incident begins with that is of a check.
CHECK = "check/"

_SYMPTOMS = 8

# What a domain shows, as told by one of its nodes, by uid and classes of faults.
Sight = Callable[[str, tuple[str, ...]], Symptom | None]


def of_domain(cover: Cover, members: int, rule: Blame, sight: Sight, now: Instant) -> Incident:
    """The incident of a domain that is to blame, without what is known of it from before. members: all of its
    nodes, those that may not vote, too.
    """
    one = cover.blamed
    scope = f"{members} nodes of {one.domain}"
    why = cover.why
    if cover.state == State.DRY_RUN:
        done = f"keep new gang work off {scope}"
        why = f"would not {done}: {cover.why}" if cover.why else f"would {done}"
    return Incident(
        name=named(one.name),
        node="",
        uid="",
        resource=one.name,
        cause=one.kinds[0] if one.kinds else "domain-degraded",
        health=Health.SUSPECT,
        state=cover.state,
        since=now.wall - (now.mono - one.began),
        changed=0.0,
        domain=one.domain,
        scope=scope,
        word=one.view,
        action=Action.CONTACT_SUPPORT,
        message=why_blamed(one, rule),
        detail="; ".join(filter(None, (why, until_cleared(one, rule)))),
        symptoms=tuple(_symptoms(one.voters, one.kinds, sight)),
    )


def of_check(one: Held, sight: Sight, now: Instant) -> Incident:
    """The incident of a check that is held."""
    return Incident(
        name=named(f"{CHECK}{one.check}"),
        node="",
        uid="",
        resource=f"{CHECK}{one.check}",
        cause=one.check,
        health=Health.WARNING,
        state=State.OPEN,
        since=now.wall - (now.mono - one.since),
        changed=0.0,
        word="held",
        part=one.domain,
        action=Action.WATCH,
        message=f"check {one.check} is suppressed: {why_held(one)}",
        detail="it marks nothing new, and its marks that no other source confirms are released",
        symptoms=tuple(_symptoms(one.nodes, (), sight)),
    )


def named(what: str) -> str:
    """Name of the incident of a domain or check, the same whoever tells of it."""
    words = re.sub(r"[^a-z0-9-]+", "-", what[:200].lower()).strip("-")
    return f"{words}-{blake2b(what.encode(), digest_size=4).hexdigest()}"


def _symptoms(uids: Iterable[str], kinds: tuple[str, ...], sight: Sight) -> Iterator[Symptom]:
    found = 0
    for uid in uids:
        one = sight(uid, kinds)
        if one is not None:
            yield one
            found += 1
        if found == _SYMPTOMS:
            return
