"""Metrics of incidents: their number by state, and one series for each incident that an alert may report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from nodeguard.aggregator.metric_families import PREFIX, counter, gauge, gauges
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.policy_rules import mode_of
from nodeguard.fleet_api.incident import all_incidents
from nodeguard.model.finding import Health
from nodeguard.model.hardware import hardware_label
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.job import jobs_text
from nodeguard.model.mark import MARK_OF_HEALTH
from nodeguard.model.policy import Mode, Policy
from nodeguard.pipeline.verdict_metrics import INJECTED, injected_label

# Incidents with a series of their own, the worst first.
_MAX_INCIDENTS = 500

# An alert on the first four labels fires once for each incident: they do not change while it is open. mode
# changes with the policy only. The text of an alert has the others.
_LABELS = ("incident", "kind", "node", "target", "health", "cause", "action", "mode", "state", "part")
_OPTIONAL_LABELS = ("scope", "owner", "jobs")


def incident_families(planner: Planner) -> Iterator[Metric]:
    """Yield the metrics of incidents."""
    incidents = list(all_incidents(planner))
    states = Counter(incident.state for incident in incidents if not incident.injected)
    numbers = gauges(
        "incidents",
        f"Open incidents by state; those of injected faults have the label {INJECTED}.",
        "state",
        {state.slug: states[state] for state in IncidentState if state != IncidentState.RESOLVED},
    )
    injected = Counter(
        incident.state.slug for incident in incidents if incident.injected and incident.is_open
    )
    for state, number in sorted(injected.items()):
        numbers.add_sample(numbers.name, {"state": state, INJECTED: "true"}, number)
    yield numbers
    yield gauge(
        "omitted_incidents",
        "Incidents above the limit of a node or of the fleet, without those of injected faults; nodeguard "
        "status has the number of nodes.",
        sum(map(len, planner.tracker.recorded.left_out.values())),
    )
    yield counter(
        "incidents_omitted",
        "Incidents above a limit when they began, without those of injected faults.",
        planner.tracker.recorded.left_out_total,
    )
    family = GaugeMetricFamily(
        PREFIX + "incident",
        "1 for each suspect or fatal incident that is not in its grace period, not part of another incident, "
        f"and not on a node under maintenance; the first {_MAX_INCIDENTS}, fatal first. mode: enforce if its "
        "mark is enforced, else observe. part: the target as text. scope: what the mark keeps from work. "
        "owner: the team that acts on a degraded domain. jobs: those on its nodes. "
        f"One of an injected fault has the label {INJECTED}, and comes after all real ones.",
    )
    reported = (incident for incident in incidents if _is_reported(planner, incident))
    for incident in sorted(reported, key=_order)[:_MAX_INCIDENTS]:
        kind = "domain" if incident.domain else "node"
        mode = _mode(planner.policy, incident)
        values = (incident.health.value, incident.cause, incident.action.value, mode.value)
        part = hardware_label(incident.target, incident.hardware)
        texts = (incident.name, kind, incident.node, incident.target, *values, incident.state.slug, part)
        labels = dict(zip(_LABELS, texts, strict=True))
        optional = (incident.scope, incident.owner, jobs_text(incident.jobs, incident.jobs_omitted))
        labels |= {name: text for name, text in zip(_OPTIONAL_LABELS, optional, strict=True) if text}
        family.add_sample(family.name, {**labels, **injected_label(injected=incident.injected)}, 1)
    yield family


def _is_reported(planner: Planner, incident: Incident) -> bool:
    """Return whether an alert reports an incident by itself."""
    placement = planner.state.placements.get(incident.uid)
    return (
        incident.health in MARK_OF_HEALTH
        and incident.state not in {IncidentState.PENDING, IncidentState.RESOLVED}
        and not incident.parent
        and (placement is None or not placement.maintenance)
    )


def _mode(policy: Policy, incident: Incident) -> Mode:
    """Return the mode of the mark that an incident requests: of its check, or of its topology."""
    if incident.domain:
        topology = incident.domain.partition("/")[0]
        return Mode.ENFORCE if topology in policy.diagnosis.enforce else Mode.OBSERVE
    return mode_of(policy, incident.cause, MARK_OF_HEALTH[incident.health])


def _order(incident: Incident) -> tuple[bool, bool, bool, float, str]:
    is_fatal = incident.health == Health.FATAL
    return incident.injected, not is_fatal, not incident.domain, incident.first_seen, incident.name
