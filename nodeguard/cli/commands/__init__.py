"""The commands, one module each. `nodeguard --help` reads this table, and imports none of them."""

from __future__ import annotations

from typing import NamedTuple

GROUPS = ("Node", "Fleet", "Checks and policy", "Tools")


class Command(NamedTuple):
    """A command: the name of its module, the group under which the help lists it, and one line of help."""

    name: str
    group: str
    summary: str


COMMANDS = (
    Command("agent", "Node", "check this machine continuously and serve metrics"),
    Command("aggregator", "Fleet", "collect agent reports and mark unhealthy nodes"),
    Command("backtest", "Checks and policy", "replay history against a policy"),
    Command("check", "Node", "check this machine, or a recording"),
    Command("checks", "Checks and policy", "list checks by family, and validate your own"),
    Command("clear", "Node", "clear a finding on this machine"),
    Command("completion", "Tools", "print a completion script for bash, zsh or fish"),
    Command("describe", "Fleet", "show a node, incident or domain in detail"),
    Command("doctor", "Tools", "check the installation of nodeguard, on this node or in a cluster"),
    Command("drain", "Fleet", "evict the pods on faulty hardware of a node"),
    Command(
        "explain", "Checks and policy", "explain a check, an Xid, a line of a log or an error, or search"
    ),
    Command("get", "Fleet", "list nodes, GPUs, ports, domains, incidents, budgets and more"),
    Command("gpus", "Node", "detach the agent from GPUs for a reset"),
    Command("history", "Fleet", "show what changed: faults, marks, pauses, policy"),
    Command("incidents", "Fleet", "acknowledge and clear incidents"),
    Command("inject", "Node", "inject a fault on this machine, for a rehearsal"),
    Command("man", "Tools", "print the man page"),
    Command("pause", "Fleet", "stop setting new marks"),
    Command("policy", "Checks and policy", "validate a policy file and show its effect"),
    Command("record", "Node", "save a recording of this machine"),
    Command("report", "Fleet", "show availability: faults, time to repair, GPU-hours out"),
    Command("resume", "Fleet", "end a pause"),
    Command("simulate", "Checks and policy", "simulate the effect of a policy on a fleet"),
    Command("status", "Fleet", "show the health of the fleet, or of this node"),
    Command("unmark", "Fleet", "remove the marks of nodes, or all nodeguard marks"),
    Command("version", "Tools", "print the version"),
)
