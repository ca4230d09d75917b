"""The aggregator's metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from nodeguard.aggregator.history.history import History
from nodeguard.aggregator.ingest.server import IngestServer
from nodeguard.aggregator.policy.reload import PolicyReloader
from nodeguard.aggregator.service import AggregatorService
from nodeguard.fleet_api.domain import list_topologies
from nodeguard.fleet_api.incident import all_incidents
from nodeguard.fleet_api.schema.node import DEGRADED
from nodeguard.model.diagnosis import LOCATION_TOPOLOGIES
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.mark import Mark
from nodeguard.wire.exposition import counter, gauge, plain


def render_metrics(
    service: AggregatorService, ingest: IngestServer, policy: PolicyReloader | None, now: Instant
) -> str:
    """What there is to be told, in Prometheus' text format; of nodes, numbers alone: their own agents tell
    the rest.
    """
    return "".join(_families(service, ingest, policy, now))


def _families(
    service: AggregatorService, ingest: IngestServer, policy: PolicyReloader | None, now: Instant
) -> Iterator[str]:
    planner = service.planner
    silence = planner.stale_agents
    yield plain("nodeguard_aggregator_up", "Always 1: for an alert that says that alerts work.", 1)
    yield plain(
        "nodeguard_aggregator_leads",
        "Whether this aggregator leads: holds the lease, where there is one.",
        service.is_leader,
    )
    yield plain("nodeguard_aggregator_acts", "Whether its plans are carried out.", service.is_active)
    yield counter("nodeguard_plans_total", "Plans made.", [({}, service.plans)])
    yield counter(
        "nodeguard_plan_errors_total", "Plans that failed; the log says why.", [({}, service.errors)]
    )
    yield plain("nodeguard_plan_age_seconds", "Seconds since the latest plan.", now.mono - service.planned_at)
    yield plain("nodeguard_plan_duration_seconds", "Seconds that the latest plan took.", service.plan_seconds)
    yield plain("nodeguard_agents_expected", "Agents that should report.", silence.expected)
    yield plain(
        "nodeguard_agents_silent", "Agents of which this aggregator hears nothing.", len(silence.stale)
    )
    yield plain(
        "nodeguard_agents_heard", "Agents that have said anything to this aggregator.", silence.reported
    )
    yield plain("nodeguard_agent_connections", "Open connections of agents.", ingest.connections)
    if service.capacity is not None:
        yield plain(
            "nodeguard_aggregator_connections_max",
            "Connections of agents that are accepted at a time, under the limit on open files.",
            service.capacity.connections,
        )
    counts = dict(ingest.endpoint.counts)
    received = counts.pop("bytes", 0)
    yield counter("nodeguard_received_bytes_total", "Bytes of messages that were heard.", [({}, received)])
    yield counter(
        "nodeguard_messages_total",
        "What agents sent, by what became of it.",
        [({"result": name}, count) for name, count in sorted(counts.items())],
    )
    yield counter(
        "nodeguard_aggregator_refused_messages_total",
        "Messages of nodes that were refused, by reason; the log and nodeguard status name the nodes.",
        [({"reason": reason}, count) for reason, count in sorted(service.refusals.counts.items())],
    )
    yield plain(
        "nodeguard_aggregator_refused_nodes",
        "Nodes of which a message was refused in the past ten minutes.",
        len(service.refusals.recent(now.mono)),
    )
    frozen = bool(silence.frozen)
    yield plain("nodeguard_frozen", "Whether too many agents are silent to mark anything new.", frozen)
    yield plain("nodeguard_paused", "Whether people have paused new marks.", _paused(service))
    if policy is not None:
        wrong = bool(policy.error)
        yield plain(
            "nodeguard_policy_wrong", "Whether the policy file is wrong, and an older one counts.", wrong
        )
        yield counter(
            "nodeguard_policy_refusals_total",
            "Policy files that were kept out.",
            [({}, policy.rejected_count)],
        )
    health = Counter(one.health for one in planner.reports.values())
    yield gauge(
        "nodeguard_nodes",
        "Nodes by the health that their agents told last.",
        [({"health": state.value}, health[state]) for state in Health],
    )
    marks = Counter(mark for uid in planner.state.marked_nodes() for mark in _marks(service, uid))
    yield gauge(
        "nodeguard_marked_nodes",
        "Nodes that are marked.",
        [({"mark": mark}, marks[mark]) for mark in (*Mark, DEGRADED)],
    )
    yield plain("nodeguard_marked_devices", "Devices that are marked.", len(planner.state.rules))
    states = Counter(one.state for one in all_incidents(planner))
    yield gauge(
        "nodeguard_incidents",
        "Incidents by state.",
        [
            ({"state": state.value}, states[state])
            for state in IncidentState
            if state != IncidentState.RESOLVED
        ],
    )
    yield plain(
        "nodeguard_aggregator_incidents_left_out",
        "Incidents for which there is no room now; nodeguard status says of how many nodes.",
        sum(map(len, planner.incidents_left_out.values())),
    )
    yield counter(
        "nodeguard_aggregator_incidents_left_out_total",
        "Incidents that found no room when they began.",
        [({}, planner.incidents_left_out_total)],
    )
    yield plain(
        "nodeguard_aggregator_lemons",
        "Parts that fail again and again, far more often than others of the fleet.",
        len(planner.component_faults.repeat_offenders(now)),
    )
    if isinstance(service.history, History):
        yield from _of_history(service.history)
    yield from _of_domains(service)
    told = sorted(planner.state.budgets.rows(), key=lambda one: one[1] / one[2], reverse=True)[:_LEDGERS]
    yield gauge(
        "nodeguard_ledger_used_ratio",
        f"Share of a budget's ledger that is spent, 1 for all of it; the {_LEDGERS} fullest.",
        [({"ledger": name}, used / most) for name, used, most, _ in told],
    )


def _of_history(history: History) -> Iterator[str]:
    writer = history.writer
    yield plain(
        "nodeguard_history_written", "Whether the history is written; the log says why not.", not writer.error
    )
    yield plain("nodeguard_history_bytes", "Bytes of the history's file.", writer.size)
    yield counter(
        "nodeguard_history_transitions_total", "Transitions written to the history.", [({}, writer.added)]
    )
    yield counter(
        "nodeguard_history_lost_total", "Transitions that will never be in the history.", [({}, writer.lost)]
    )


# A fleet has thousands of domains.
_LEDGERS = 20


# Checks that are named of those that are held: more are a fleet that nobody asks about its checks.
_CHECKS = 20


def _of_domains(service: AggregatorService) -> Iterator[str]:
    """What nodes share; by view, of which there are a dozen."""
    planner, known = service.planner, list_topologies(service.planner)
    yield gauge(
        "nodeguard_aggregator_view_domains",
        "Domains by the view that they are of.",
        [({"view": one.topology}, one.domains) for one in known],
    )
    yield gauge(
        "nodeguard_aggregator_view_nodes_lacking",
        "Nodes that lack a label or place by which others are in a view's domains, the most of any.",
        [
            ({"view": one.topology}, max((lack.nodes for lack in one.missing_labels), default=0))
            for one in known
        ],
    )
    blamed = Counter((one.degraded.topology, one.state) for one in planner.domain_decisions.values())
    seen = {one.topology for one in known} | {view for view, _ in blamed}
    yield gauge(
        "nodeguard_aggregator_domains",
        "Domains that are to blame, by what becomes of their mark.",
        [
            ({"view": view, "state": state.slug}, blamed[view, state])
            for view in sorted(seen & {*LOCATION_TOPOLOGIES, *(view for view, _ in blamed)})
            for state in (planner.granted, IncidentState.WITHHELD, IncidentState.DRY_RUN)
        ],
    )
    yield gauge(
        "nodeguard_aggregator_checks_held",
        f"Checks that are not acted upon, the first {_CHECKS} by name; 1 for each.",
        [({"check": check}, 1) for check in sorted(planner.diagnosis.suppressed_checks)[:_CHECKS]],
    )


def _marks(service: AggregatorService, uid: str) -> set[str]:
    node = service.planner.state.observed_marks(uid).node
    return {*(cause.mark for cause in node.causes), *((DEGRADED,) if node.degraded else ())}


def _paused(service: AggregatorService) -> bool:
    return bool(service.planner.paused or service.planner.policy.pause)
