"""Where the plug-in runs a command, by its options. Pure."""

from __future__ import annotations

from argparse import Namespace
from enum import Enum

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


class Route(Enum):
    """Where a command runs: here, here from NodeIncidents, in the pod of the leader, or on a node.
    DECISION: in the pod, or in the NodeIncident if the user may only patch it.
    """

    HERE = "here"
    INCIDENTS = "incidents"
    DECISION = "decision"
    POD = "pod"
    NODE = "node"


def is_local(name: str, *, has_node: bool = False) -> bool:
    """Return whether a command runs here whatever its options are.

    name: its first word. has_node: whether `--on` names a node.
    """
    return name not in _FLEET | _AGENT and not (has_node and name in READS_MACHINE)


def route(name: str, options: Namespace) -> Route:
    """Return where a command runs. name: of one that is not local."""
    match name:
        case "get" if options.resource == "incidents":
            return Route.INCIDENTS
        case "describe" if options.kind == "incident":
            return Route.INCIDENTS
        case "incidents":
            return Route.DECISION
        case "get" if options.resource == "checks":
            return Route.HERE
        case "unmark" if options.without_aggregator:
            return Route.HERE
        case "check" | "doctor":
            return Route.HERE if _reads_no_machine(options) else Route.NODE
        case "gpus" | "status":
            asks_agent = options.agent if name == "status" else not getattr(options, "node", "")
            return Route.NODE if asks_agent else Route.POD
    return Route.NODE if name in _AGENT else Route.POD


def _reads_no_machine(options: Namespace) -> bool:
    """Return whether `check` reads a recording, or `doctor` the cluster."""
    return bool(getattr(options, "bundle", None) or getattr(options, "cluster", False))
