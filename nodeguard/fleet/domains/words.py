"""A diagnosis in words: what is blamed, on which evidence, and what would change that. Pure."""

from __future__ import annotations

from math import ceil

from nodeguard.fleet.blame.blamed import Blamed, Held
from nodeguard.fleet.blame.past import clearing_time, fewest_nodes
from nodeguard.judge.words import span
from nodeguard.model.blame import SILENT, Blame


def why_blamed(one: Blamed, rule: Blame) -> str:
    """What is held against a domain, with the counter-evidence."""
    if one.recalled:
        return f"{one.domain} was to blame before this aggregator began; its nodes are heard anew"
    says = next((kind.says for kind in rule.classes if kind.name == one.kinds[0]), "show the same")
    found = f"{one.domain}: {len(one.voters)} of {one.size} nodes {says}{_within(one.within)}"
    if not one.siblings:
        return found
    many = "its one sibling" if one.siblings == 1 else f"its {one.siblings} siblings"
    if one.elsewhere:
        return f"{found}; of {many}, {_nodes(one.elsewhere)} did"
    return f"{found}; {many} did not"


def until_cleared(one: Blamed, rule: Blame) -> str:
    """What would change that."""
    kinds = [kind for kind in rule.classes if kind.name in one.kinds]
    least = max([2, *(ceil(fewest_nodes(kind.share, one.size)) for kind in kinds)])
    return f"over when fewer than {least} of its nodes show it for {span(clearing_time(rule, one.times))}"


def why_held(one: Held) -> str:
    """Why a check is not acted upon."""
    if not one.nodes:
        return "it was before this aggregator began, and is until it is quiet"
    who = _nodes(len(one.nodes))
    if one.domain:
        return f"it fires on {who}, nearly all of them with {one.domain}: see what changed there"
    if one.check == SILENT:
        also = "kubelets among them, too" if one.real else "the observer or its network"
        return f"{who} fell silent that share nothing: {also}"
    if one.limit < 1:
        return f"it fires on {who}, as it did before this aggregator began"
    chance = f"{one.limit - 1} within {span(one.within)} may be chance"
    borne_out = "other sources bear it out: it is real" if one.real else "nothing bears it out: it misfires"
    return f"it fires on {who} that share nothing, where {chance}; {borne_out}"


def _nodes(many: int) -> str:
    return f"{many} node{'' if many == 1 else 's'}"


def _within(seconds: float) -> str:
    return f" within {span(seconds)}" if seconds >= 1.0 else " at once"
