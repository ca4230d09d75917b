"""Doubtful domains: degraded domains of which a false alarm of a check may explain the votes as well. Pure.

A false alarm that spreads slowly may reach many nodes of one domain first, by chance. What it does later, on
other nodes, shows what it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, log

from nodeguard.fleet.diagnosis.likelihood import CLEARLY_LIKELIER, two_shares_evidence
from nodeguard.fleet.diagnosis.results import BEFORE_FIRST_VOTE, Candidate, DegradedDomain
from nodeguard.fleet.diagnosis.significance import significance
from nodeguard.fleet.diagnosis.vote_index import VoteIndex


def doubtful_domains(check: str, degraded: Iterable[DegradedDomain], votes: VoteIndex) -> list[Candidate]:
    """Return the domains, of some that are degraded, that a false alarm of a check may explain, as candidates
    with the nodes on which it fires. No other check of their fault classes fires in them, and a fault of the
    domain does not explain clearly better on which nodes this one fires, and in which order.
    """
    classes, firings, members = votes.classes_of(check).keys(), votes.firings_of(check), votes.members
    of_check = [item for item in degraded if not (item.restored or classes.isdisjoint(item.fault_classes))]
    if not of_check:
        return []
    onsets = {uid: at for uid, at in firings.latest.items() if uid not in firings.kernel_confirmed}
    order = sorted(onsets, key=lambda uid: onsets[uid])
    doubtful = []
    for item in of_check:
        nodes = members.nodes(item.domain)
        voters = {uid: at for uid, at in onsets.items() if uid in nodes}
        if not voters or _has_other_checks(check, item, votes):
            continue
        # If the domain fails, its nodes come first.
        first = sum(uid in nodes for uid in order[: len(voters)])
        evidence = significance(first, len(voters), len(voters) / len(order))
        evidence += two_shares_evidence(len(voters), len(nodes), len(order), len(members))
        if evidence < log(CLEARLY_LIKELIER):
            fault_class = next(name for name in item.fault_classes if name in classes)
            doubtful.append(Candidate(fault_class, item.domain, inf, voters, len(nodes)))
    return doubtful


def _has_other_checks(check: str, degraded: DegradedDomain, votes: VoteIndex) -> bool:
    """Return whether other checks of its fault classes fire on enough nodes of a domain to prove it."""
    nodes, since = votes.members.nodes(degraded.domain), degraded.began - BEFORE_FIRST_VOTE
    confirmed = {
        uid
        for fault_class in degraded.fault_classes
        for other, firings in votes.firings_by_check(fault_class)
        if other != check
        for uid, at in firings.latest.items()
        if at >= since and uid in nodes
    }
    return len(confirmed) >= votes.rule.min_nodes
