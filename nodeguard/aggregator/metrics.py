"""The aggregator's metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from nodeguard.aggregator.history.history import History
from nodeguard.aggregator.ingest.server import Ingest
from nodeguard.aggregator.reload import PolicyFile
from nodeguard.aggregator.service import Service
from nodeguard.fleet_api.incidents import every
from nodeguard.fleet_api.node_forms import DEGRADED
from nodeguard.fleet_api.views import views
from nodeguard.model.blame import PLACES
from nodeguard.model.finding import Health
from nodeguard.model.incident import State
from nodeguard.model.instant import Instant
from nodeguard.model.mark import Mark
from nodeguard.wire.exposition import counter, gauge, plain


def as_metrics(service: Service, ingest: Ingest, policy: PolicyFile | None, now: Instant) -> str:
    """What there is to be told, in Prometheus' text format; of nodes, numbers alone: their own agents tell
    the rest.
    """
    return "".join(_families(service, ingest, policy, now))


def _families(service: Service, ingest: Ingest, policy: PolicyFile | None, now: Instant) -> Iterator[str]:
    planner = service.planner
    silence = planner.silence
    yield plain("nodeguard_aggregator_up", "Always 1: for an alert that says that alerts work.", 1)
    yield plain(
        "nodeguard_aggregator_leads",
        "Whether this aggregator leads: holds the lease, where there is one.",
        service.leads,
    )
    yield plain("nodeguard_aggregator_acts", "Whether its plans are carried out.", service.acts)
    yield counter("nodeguard_plans_total", "Plans made.", [({}, service.plans)])
    yield counter(
        "nodeguard_plan_errors_total", "Plans that failed; the log says why.", [({}, service.errors)]
    )
    yield plain("nodeguard_plan_age_seconds", "Seconds since the latest plan.", now.mono - service.planned)
    yield plain("nodeguard_plan_duration_seconds", "Seconds that the latest plan took.", service.took)
    yield plain("nodeguard_agents_expected", "Agents that should report.", silence.expected)
    yield plain(
        "nodeguard_agents_silent", "Agents of which this aggregator hears nothing.", len(silence.silent)
    )
    yield plain("nodeguard_agents_heard", "Agents that have said anything to this aggregator.", silence.heard)
    yield plain("nodeguard_agent_connections", "Open connections of agents.", ingest.connections)
    if service.capacity is not None:
        yield plain(
            "nodeguard_aggregator_connections_max",
            "Connections of agents that are accepted at a time, under the limit on open files.",
            service.capacity.connections,
        )
    counts = dict(ingest.exchange.counts)
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
            "nodeguard_policy_refusals_total", "Policy files that were kept out.", [({}, policy.refusals)]
        )
    health = Counter(one.health for one in planner.heard.values())
    yield gauge(
        "nodeguard_nodes",
        "Nodes by the health that their agents told last.",
        [({"health": state.value}, health[state]) for state in Health],
    )
    marks = Counter(mark for uid in planner.roster.remembered() for mark in _marks(service, uid))
    yield gauge(
        "nodeguard_marked_nodes",
        "Nodes that are marked.",
        [({"mark": mark}, marks[mark]) for mark in (*Mark, DEGRADED)],
    )
    yield plain("nodeguard_marked_devices", "Devices that are marked.", len(planner.roster.rules))
    states = Counter(one.state for one in every(planner))
    yield gauge(
        "nodeguard_incidents",
        "Incidents by state.",
        [({"state": state.value}, states[state]) for state in State if state != State.RESOLVED],
    )
    yield plain(
        "nodeguard_aggregator_incidents_left_out",
        "Incidents for which there is no room now; nodeguard status says of how many nodes.",
        sum(map(len, planner.incidents_left_out.values())),
    )
    yield counter(
        "nodeguard_aggregator_incidents_left_out_total",
        "Incidents that found no room when they began.",
        [({}, planner.incidents_left_out_ever)],
    )
    yield plain(
        "nodeguard_aggregator_lemons",
        "Parts that fail again and again, far more often than others of the fleet.",
        len(planner.parts.lemons(now)),
    )
    if isinstance(service.history, History):
        yield from _of_history(service.history)
    yield from _of_domains(service)
    told = sorted(planner.roster.ledgers.told(), key=lambda one: one[1] / one[2], reverse=True)[:_LEDGERS]
    yield gauge(
        "nodeguard_ledger_used_ratio",
        f"Share of a budget's ledger that is spent, 1 for all of it; the {_LEDGERS} fullest.",
        [({"ledger": name}, used / most) for name, used, most, _ in told],
    )


def _of_history(history: History) -> Iterator[str]:
    writer = history.writer
    yield plain(
        "nodeguard_history_written", "Whether the history is written; the log says why not.", not writer.wrong
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


def _of_domains(service: Service) -> Iterator[str]:
    """What nodes share; by view, of which there are a dozen."""
    planner, known = service.planner, views(service.planner)
    yield gauge(
        "nodeguard_aggregator_view_domains",
        "Domains by the view that they are of.",
        [({"view": one.view}, one.domains) for one in known],
    )
    yield gauge(
        "nodeguard_aggregator_view_nodes_lacking",
        "Nodes that lack a label or place by which others are in a view's domains, the most of any.",
        [({"view": one.view}, max((lack.nodes for lack in one.lacks), default=0)) for one in known],
    )
    blamed = Counter((one.blamed.view, one.state) for one in planner.covers.values())
    seen = {one.view for one in known} | {view for view, _ in blamed}
    yield gauge(
        "nodeguard_aggregator_domains",
        "Domains that are to blame, by what becomes of their mark.",
        [
            ({"view": view, "state": state.slug}, blamed[view, state])
            for view in sorted(seen & {*PLACES, *(view for view, _ in blamed)})
            for state in (planner.granted, State.WITHHELD, State.DRY_RUN)
        ],
    )
    yield gauge(
        "nodeguard_aggregator_checks_held",
        f"Checks that are not acted upon, the first {_CHECKS} by name; 1 for each.",
        [({"check": check}, 1) for check in sorted(planner.diagnosis.held)[:_CHECKS]],
    )


def _marks(service: Service, uid: str) -> set[str]:
    node = service.planner.roster.observed(uid).node
    return {*(cause.mark for cause in node.causes), *((DEGRADED,) if node.degraded else ())}


def _paused(service: Service) -> bool:
    return bool(service.planner.paused or service.planner.policy.pause)
