"""Where the plug-in runs a command, by its options. Pure."""

from __future__ import annotations

from argparse import Namespace
from enum import Enum

from nodeguard.fleet_api.schema.capacity import WorkState

# Commands that ask the aggregator, and those that ask the agent of the machine on which they run.
_FLEET = frozenset({
    "describe", "drain", "get", "gpus", "history", "incidents", "pause", "report", "resume", "status",
    "unmark",
})  # fmt: skip
_AGENT = frozenset({"clear", "inject"})
# Commands that read the machine on which they run: with `--on` a node, in the pod of its agent.
READS_MACHINE = frozenset({"check", "doctor"})

# Commands that record who runs them; in a pod all operators are the same user.
RECORDS_OPERATOR = frozenset({"clear", "drain", "gpus", "incidents", "pause", "resume", "unmark"})

# Fields of a node in a list that only reports, the policy or the plan have, and such states of its work.
REPORTED_FIELDS = frozenset({
    "driver", "findings", "health", "last_report_age", "pending", "platform", "pool", "stale",
})  # fmt: skip
_REPORTED_STATES = frozenset({WorkState.WORKING, WorkState.FAULTY})


class Route(Enum):
    """Where a command runs: here, here from NodeIncidents, in the pod of the leader, or on a node.
    NODES: in the pod, or here from Nodes and NodeIncidents if the user may not run commands in pods.
    DECISION: in the pod, or in the NodeIncident if the user may only patch it.
    """

    HERE = "here"
    INCIDENTS = "incidents"
    NODES = "nodes"
    DECISION = "decision"
    POD = "pod"
    NODE = "node"


_LISTS = {"incidents": Route.INCIDENTS, "nodes": Route.NODES, "checks": Route.HERE}


def is_local(name: str, *, has_node: bool = False) -> bool:
    """Return whether a command runs here whatever its options are.

    name: its first word. has_node: whether `--on` names a node.
    """
    return name not in _FLEET | _AGENT and not (has_node and name in READS_MACHINE)


def route(name: str, options: Namespace) -> Route:
    """Return where a command runs. name: of one that is not local."""
    match name:
        case "get":
            return _LISTS.get(options.resource, Route.POD) if not _selects_reported(options) else Route.POD
        case "describe":
            return {"incident": Route.INCIDENTS, "domain": Route.POD}.get(options.kind, Route.NODES)
        case "incidents":
            return Route.DECISION
        case "unmark" if options.without_aggregator:
            return Route.HERE
        case "check" | "doctor":
            return Route.HERE if _reads_no_machine(options) else Route.NODE
        case "gpus" | "status":
            asks_agent = options.agent if name == "status" else not getattr(options, "node", "")
            return Route.NODE if asks_agent else Route.POD
    return Route.NODE if name in _AGENT else Route.POD


def _selects_reported(options: Namespace) -> bool:
    """Return whether `get` selects nodes, or sorts them, by a value that no Node has."""
    if options.resource != "nodes":
        return False
    fields = {options.sort_by, *(term.field for term in options.field_selector)}
    has_state = bool(_REPORTED_STATES & set(options.work))
    return bool(options.health or options.unhealthy or has_state or fields & REPORTED_FIELDS)


def _reads_no_machine(options: Namespace) -> bool:
    """Return whether `check` reads a recording, or `doctor` the cluster."""
    return bool(getattr(options, "bundle", None) or getattr(options, "cluster", False))
