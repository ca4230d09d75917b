"""The constants of the diagnosis, each at another value: how much the figures depend on it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from math import inf
from types import ModuleType
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.planner import Planner
from nodeguard.model.diagnosis import DiagnosisPolicy, FaultClass
from nodeguard.model.policy import Policy

Scale = Callable[[DiagnosisPolicy, float], DiagnosisPolicy]

_T = TypeVar("_T", bound=Struct)

# What separates the name of a constant from its factor in the name of a rule.
_TIMES = " x"


def _scaled(value: object, factor: float, maximum: float = inf) -> object:
    """Return a number, or each of several, multiplied; a count stays a whole number of at least 1.

    Raises TypeError for another value.
    """
    match value:
        case int():
            return max(1, round(value * factor))
        case float():
            return min(value * factor, maximum)
        case tuple():
            return tuple(_scaled(part, factor) for part in value)
        case _:
            raise TypeError(f"{value!r} is not a number")


def _changed(owner: _T, name: str, factor: float, maximum: float = inf) -> _T:
    """Return a struct with one field multiplied."""
    return replace(owner, **{name: _scaled(getattr(owner, name), factor, maximum)})


def _setting(name: str, section: str = "", maximum: float = inf) -> Scale:
    """Return what changes a field of the policy, or of a section of it."""

    def scale(rule: DiagnosisPolicy, factor: float) -> DiagnosisPolicy:
        if not section:
            return _changed(rule, name, factor, maximum)
        return replace(rule, **{section: _changed(getattr(rule, section), name, factor, maximum)})

    return scale


def _significance(rule: DiagnosisPolicy, factor: float) -> DiagnosisPolicy:
    """Change the exponent of a probability: half of 1e-6 is 1e-3."""
    return replace(rule, significance=rule.significance**factor)


def _significance_of_suppression(rule: DiagnosisPolicy, factor: float) -> DiagnosisPolicy:
    part = rule.suppression
    return replace(rule, suppression=replace(part, significance=part.significance**factor))


def _of_classes(name: str, maximum: float = inf) -> Scale:
    """Return what changes a field of all fault classes."""
    return lambda rule, factor: replace(
        rule, classes=tuple(_changed(item, name, factor, maximum) for item in rule.classes)
    )


def _of_topologies(name: str) -> Scale:
    """Return what changes a field of the topologies of all fault classes."""

    def change(item: FaultClass, factor: float) -> FaultClass:
        topologies = tuple(_changed(topology, name, factor, 1.0) for topology in item.topologies)
        return replace(item, topologies=topologies)

    return lambda rule, factor: replace(rule, classes=tuple(change(item, factor) for item in rule.classes))


POLICY: Mapping[str, Scale] = {
    "minNodes": _setting("min_nodes"),
    "significance": _significance,
    "rateMargin": _setting("rate_margin"),
    "gracePeriod": _setting("grace_period"),
    "maxDailyOnsets": _setting("max_daily_onsets"),
    "weakEvidence.share": _setting("share", "weak_evidence", 1.0),
    "weakEvidence.wait": _setting("wait", "weak_evidence"),
    "recovery.initial": _setting("initial", "recovery"),
    "recovery.max": _setting("max", "recovery"),
    "recovery.resetAfter": _setting("reset_after", "recovery"),
    "suppression.minNodes": _setting("min_nodes", "suppression"),
    "suppression.usualDailyOnsets": _setting("usual_daily_onsets", "suppression"),
    "suppression.significance": _significance_of_suppression,
    "suppression.windows": _setting("windows", "suppression"),
    "suppression.confirmedShare": _setting("confirmed_share", "suppression", 1.0),
    "windows": _of_classes("windows"),
    "share": _of_classes("share", 1.0),
    "daily_rate": _of_classes("daily_rate"),
    "topologies.share": _of_topologies("share"),
}
"""Of a policy, by name; those of fault classes are changed in all classes at once."""

_PACKAGE = "nodeguard.fleet.diagnosis"

MODULES: Mapping[str, tuple[str, ...]] = {
    "candidates": ("_SMALL_PART", "_PAUSE", "_IN_TURN_CHANCE"),
    "likelihood": ("DOMAIN_FAILS", "WRONG_LABEL", "CLEARLY_LIKELIER"),
    "diagnosis": ("_LATER", "_SOON"),
    "job_starts": ("_BEFORE", "_AFTER", "_TOLERANCE", "_SPREAD", "_OTHERS"),
    "node_evidence": ("_TOGETHER",),
    "results": ("BEFORE_FIRST_VOTE", "ALL_REPORTED", "NO_AGENT", "_RECOVERING_AFTER", "_FEW"),
    "settling_candidates": ("_SAME_TIME", "_CLEARLY_LIKELIER", "_PART_CLEARLY_LIKELIER"),
    "shared_versions": (
        "_MIN_VOTER_SHARE",
        "MAX_FLEET_SHARE",
        "_MIN_OVERLAP",
        "_MIN_SIGNIFICANCE",
        "_NEW_SECONDS",
    ),
    "significance": ("_MEMORY", "_WORTH"),
    "stopped_agents": ("_RECENT",),
    "suppressed_checks": ("_RETRACTION_SHARE", "_RETRACTION_NODES"),
    "suspected_checks": (
        "_CLEARLY_LIKELIER",
        "_OF_ONE",
        "_TIMES_ITS_PART",
        "_MANY",
        "_CAUSES",
        "_CLEAR_SHARE",
        "_MISPLACED",
        "_TIMES_USUAL",
    ),
    "vote_collector": ("VOTE_INTERVAL", "_ESTABLISHED", "_OLD"),
    "vote_index": ("_FAULT_RATE", "_WARNING_RATE"),
    "votes": ("AFTER_RECEIPT", "BEFORE_RECEIPT"),
}
"""Of modules of the diagnosis."""

LIMITS = frozenset(
    {
        "check_firings._DAY",
        "significance._MAX_COUNT",
        "significance._MAX_POISSON_MEAN",
        "significance._NEGLIGIBLE",
        "vote_collector.MAX_VOTES",
        "vote_index._NAMES",
        "votes._DAY",
        "votes._ONSETS",
    }
)
"""Units, and limits of memory and of precision, which decide nothing."""

_SHARES = {"_IN_TURN_CHANCE", "_SMALL_PART", "_MIN_VOTER_SHARE", "MAX_FLEET_SHARE", "_MIN_OVERLAP"}


def constants() -> Iterator[str]:
    """Yield the names of all constants: of the policy, then `module.NAME`."""
    yield from POLICY
    yield from (f"{module}.{name}" for module, names in MODULES.items() for name in names)


def scaled_rule(constant: str, factor: float) -> str:
    """Return the name of the present rule with a constant that is multiplied."""
    return f"{constant}{_TIMES}{factor:g}"


@contextmanager
def scaled_planner(name: str) -> Iterator[Callable[[Policy, Collection[str]], Planner]]:
    """Provide what makes the planner of a scaled rule. Constants of modules are as before after it."""
    constant, factor = name.split(_TIMES)
    if scale := POLICY.get(constant):

        def make(policy: Policy, checks: Collection[str]) -> Planner:
            return Planner(replace(policy, diagnosis=scale(policy.diagnosis, float(factor))), checks)

        yield make
        return
    module, _, attribute = constant.partition(".")
    value = getattr(import_module(f"{_PACKAGE}.{module}"), attribute)
    changed = _scaled(value, float(factor), 1.0 if attribute in _SHARES else inf)
    owners = [owner for owner in _modules() if getattr(owner, attribute, None) is value]
    for owner in owners:
        setattr(owner, attribute, changed)
    try:
        yield Planner
    finally:
        for owner in owners:
            setattr(owner, attribute, value)


def _modules() -> list[ModuleType]:
    """Return the modules that may have a constant: its own, and those that import it."""
    return [module for name, module in sys.modules.items() if name.startswith(f"{_PACKAGE}.")]
