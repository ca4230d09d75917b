"""The commands of `kubectl nodeguard`: here, from Nodes and NodeIncidents, or in the pod of the leader."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module

from nodeguard.cli.plugin.options import NAMESPACE, ClusterOptions, split_options, with_options
from nodeguard.cli.plugin.routes import READS_MACHINE, RECORDS_OPERATOR, Route, is_local, route
from nodeguard.cli.program import PROGRAM, as_typed
from nodeguard.cli.run import HELP, command_list, run_command
from nodeguard.cli.streams import print_output
from nodeguard.cli.usage import MISSING_EXTRA, OK, UNKNOWN, UsageError

_USAGE = f"""\
usage: kubectl nodeguard [OPTION]… COMMAND [OPTION]…

The nodeguard command for a cluster, with your rights there. Commands for the fleet run in the pod of the
active aggregator, by kubectl exec. get incidents and describe incident read NodeIncidents. If you may not run
commands in pods, incidents writes them, and get nodes and describe node read Nodes. The others run here.

Options, as of kubectl:
  --context NAME, --kubeconfig FILE  the cluster
  --as USER, --as-group GROUP        act as another user, and as member of a group (repeatable)
  --on NODE                          a node: check, doctor, status --agent, clear, inject, gpus
  -n, --namespace NAME               namespace of nodeguard ({NAMESPACE}); -n only before the command
"""


def run_plugin(words: Sequence[str]) -> int:
    """Run a command; returns its exit code. words: the command line. Raises UserError."""
    cluster, command = split_options(words)
    os.environ[PROGRAM] = cluster.program
    if not command or (command[0] in HELP and len(command) == 1):
        print_output(as_typed(f"{_USAGE}\n{command_list()}"))
        return OK if command else UNKNOWN
    name = command[0]
    if is_local(name, has_node=bool(cluster.node)):
        _refuse_node(cluster)
        return _run_here(cluster, command)
    module = import_module(f"nodeguard.cli.commands.{name}")
    options = module.build_parser().parse_args(command[1:])
    place = route(name, options)
    if place is not Route.NODE:
        _refuse_node(cluster)
    elif not cluster.node:
        other = ", or add --node NAME" if name == "gpus" else ""
        raise UsageError(f"it asks the agent of one machine: name its node with --on NODE{other}")
    if place is Route.HERE:
        return _run_here(cluster, command)
    try:
        # They need the aggregator's packages.
        from nodeguard.cli.plugin.incident_client import may_decide_in_pod  # noqa: PLC0415
        from nodeguard.cli.plugin.node_client import NodeClient  # noqa: PLC0415
        from nodeguard.cli.plugin.pod import (  # noqa: PLC0415
            AGENT_ROOT,
            may_run_in_pod,
            run_in_pod,
            run_on_node,
        )
    except ModuleNotFoundError:
        raise UsageError(MISSING_EXTRA) from None
    may_use_pod = {Route.DECISION: may_decide_in_pod, Route.NODES: may_run_in_pod}.get(place)
    if may_use_pod is not None:
        place = Route.POD if may_use_pod(cluster) else Route.INCIDENTS
    if place is Route.INCIDENTS:
        options.connect = lambda _: NodeClient(cluster)
        code: int = module.run(options)
        return code
    # In a pod all operators are the same user.
    operator = [f"--by={options.by}"] if name in RECORDS_OPERATOR and hasattr(options, "by") else []
    if place is Route.NODE:
        root = [f"--root={AGENT_ROOT}"] if name in READS_MACHINE and not options.root else []
        return run_on_node(cluster, with_options(command, [*operator, *root]))
    return run_in_pod(cluster, with_options(command, operator))


def _run_here(cluster: ClusterOptions, command: Sequence[str]) -> int:
    """Run a command of this machine, with the options of the plug-in if it reads the cluster.

    Raises UsageError for a user to impersonate: these commands have no such option.
    """
    options = []
    if command[0] in {"doctor", "unmark"}:
        if cluster.user:
            raise UsageError("it reads the cluster with your rights here: leave --as and --as-group out")
        options = [
            f"--{name}={value}" for name in ("kubeconfig", "context") if (value := getattr(cluster, name))
        ]
    if command[0] == "doctor" and cluster.namespace != NAMESPACE:
        options.append(f"--namespace={cluster.namespace}")
    if command[0] == "unmark":
        os.environ["POD_NAMESPACE"] = cluster.namespace
    return run_command(with_options(command, options))


def _refuse_node(cluster: ClusterOptions) -> None:
    """Refuse a node for a command that does not run on one. Raises UsageError."""
    if cluster.node:
        raise UsageError("--on is for commands on a node: check, doctor, status --agent, clear, inject, gpus")
