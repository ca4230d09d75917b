"""The synthetic finding of an injected fault, and the reasons why a fault cannot be injected. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from math import isfinite

from nodeguard.agent.reporting.sender import InjectionReply
from nodeguard.judge.formatting import fill_template, format_duration, general_values, placeholders
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import Check
from nodeguard.model.finding import DataStatus, Evidence, Finding, Verdict
from nodeguard.model.injection import MAX_SECONDS, SOURCE
from nodeguard.model.instant import rfc3339
from nodeguard.model.observation import Observation
from nodeguard.model.target import normalize_target, parent_target, target_label

# Seconds after the latest reply of an aggregator for which its policy on injected faults is valid.
_REPLY_VALID = 120.0

# Targets that an error lists, and characters of a name that it repeats.
_MAX_LISTED = 16
_MAX_QUOTED = 80


class InjectionError(Exception):
    """A fault that cannot be injected; has the reason and the remedy."""


def find_check(catalogue: Catalogue, name: str) -> Check:
    """Return the check of a name. Raises InjectionError."""
    check = next((check for check in catalogue.checks if check.id == name), None)
    if check is None:
        raise InjectionError(f"check {quoted(name)} does not exist: see nodeguard checks")
    return check


def require_duration(seconds: float) -> None:
    """Raise InjectionError for a duration that is not positive, or longer than a day."""
    if not isfinite(seconds) or not 0 < seconds <= MAX_SECONDS:
        limit = format_duration(MAX_SECONDS)
        raise InjectionError(f"the duration must be more than 0 s and at most {limit}: set --for")


def require_option(*, allowed: bool) -> None:
    """Raise InjectionError unless the options of an agent without an aggregator allow injected faults."""
    if not allowed:
        setting = "set allow_injection in the agent's options file, or --allow-injection"
        raise InjectionError(f"this agent allows no injected faults: {setting}")


def require_policy(check: str, replies: Iterable[InjectionReply], now: float) -> None:
    """Raise InjectionError unless the policy of every aggregator allows injected faults of a check.

    While a changed policy reaches one aggregator after another, any of them may be active: so all of them
    have to allow it. replies: the latest of each; an old one does not count. now: seconds since boot.
    """
    valid = [reply for reply in replies if now - reply.at <= _REPLY_VALID]
    if not valid:
        raise InjectionError(
            "the policy of the aggregator decides, and no aggregator has answered within "
            f"{_REPLY_VALID:g} s: nodeguard status --agent shows the last acknowledgements"
        )
    for reply in valid:
        where = f"in the policy of {reply.aggregator}, and wait until it has read the change"
        if not reply.patterns:
            raise InjectionError(f"the policy allows no injected faults: set injection.allowed: true {where}")
        if not any(fnmatchcase(check, pattern) for pattern in reply.patterns):
            present = ", ".join(reply.patterns)
            raise InjectionError(
                f"the policy allows no injected fault of {check}, only of {present}: add it to "
                f"injection.checks {where}"
            )


def find_target(verdict: Verdict, check: str, name: str, gpu_names: Mapping[str, str]) -> str:
    """Return the target of a request, where the check passes now. Raises InjectionError.

    Where the check does not pass, no passing result would ever release the mark. name: of the target, or of a
    GPU by index or UUID; empty for the only possible target. gpu_names: targets of GPUs by these names.
    """
    targets = sorted(
        {target for group in verdict.passing if check in group.checks for target in group.targets}
    )
    if not targets:
        passing = sorted({name for group in verdict.passing for name in group.checks})
        others = f", such as {', '.join(passing[:_MAX_LISTED])}" if passing else ""
        raise InjectionError(
            f"{check} passes on no target of this node now, so no passing result could release its mark: "
            f"choose another check{others}"
        )
    listed = ", ".join(targets[:_MAX_LISTED])
    if len(targets) > _MAX_LISTED:
        listed += f" and {len(targets) - _MAX_LISTED} more"
    if not name:
        if len(targets) > 1:
            raise InjectionError(f"{check} has several targets: set --target to one of {listed}")
        return targets[0]
    target = next(
        (alias for alias in (name, normalize_target(name), gpu_names.get(name, "")) if alias in targets), None
    )
    if target is None:
        raise InjectionError(f"{check} does not pass on {quoted(name)} now; its targets are: {listed}")
    return target


def injected_finding(
    check: Check,
    target: str,
    observations: Iterable[Observation],
    units: Mapping[str, str],
    by: str,
    since: float,
    until: float,
) -> Finding:
    """Return the finding of an injected fault, as the check would report it.

    The message is the title of the check if it needs a value that no source has read, for example of an
    event. In the remedy such a value is a name to fill in, as in `nodeguard explain xid XID`.

    observations: of this node, for the component and the values in the message. units: by signal. by: the
    operator. since, until: seconds since the epoch.
    """
    component, hardware, values = "", None, dict[str, object]()
    for observation in observations:
        if observation.target == target:
            values.update(observation.signals)
            if observation.component is not None:
                component = observation.component.id
        if observation.target in {target, parent_target(target)} and observation.component is not None:
            hardware = observation.component.hardware or hardware
    values.update(target=target_label(target), component=component, count=1)
    has_values = values.keys() >= set(placeholders(check.message))
    text = f"injected by {by} with nodeguard inject, until {rfc3339(until)}; no hardware failed"
    return Finding(
        check=check.id,
        target=target,
        component=component,
        health=check.health,
        data_status=DataStatus.FRESH,
        action=check.action,
        since=since,
        message=fill_template(check.message, values, units) if has_values else check.title,
        evidence=(Evidence(SOURCE, text, since),),
        family=check.family,
        title=check.title,
        remedy=fill_template(check.remedy, general_values(check) | values, units),
        runbook=check.runbook,
        hardware=hardware,
    )


def quoted(text: str) -> str:
    """Return a name of a request, cut and without control characters."""
    return repr(text[:_MAX_QUOTED])
