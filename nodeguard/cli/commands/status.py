"""nodeguard status: the health of the fleet with marks and budgets, or the status of this node's agent."""

from __future__ import annotations

from argparse import Namespace

from nodeguard.cli.aggregator_client import ENVIRONMENT, AggregatorClient, UnreachableError, add_socket
from nodeguard.cli.options import AGENT_SOCKET_ENVIRONMENT, add_output
from nodeguard.cli.progress import add_watch, print_or_watch
from nodeguard.cli.render.first_screen import first_status_screen
from nodeguard.cli.render.terminal import CHECK, format_lines, format_view, terminal_width
from nodeguard.cli.streams import as_document, document_or_text, is_document, is_terminal
from nodeguard.cli.usage import OK, ArgumentParser, UsageError
from nodeguard.fleet_api.schema.status import FleetStatus
from nodeguard.fleet_api.text.status import status_view


def run(options: Namespace) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    client = AggregatorClient(options)
    if options.values and not options.agent:
        raise UsageError("--values is for --agent only: add --agent")

    def render() -> str:
        if options.values:
            return _values_text(options.socket, options.output)
        if options.agent:
            return agent_text(options.socket, options.output)
        try:
            status = client.get("status", FleetStatus)
        except UnreachableError as unreachable:
            return agent_text_or_raise(options, unreachable)
        view = status_view if options.verbose else first_status_screen
        return document_or_text(status, options.output, lambda: format_view(view(status)))

    print_or_watch(render, options)
    return OK


def agent_text(path: str | None, output: str, name: str = "") -> str:
    """Return the status of the agent at a socket, as text, json or yaml. Raises UsageError.

    path: None for the default. name: of the node that it must be, empty for any.
    """
    from nodeguard.cli.local_agent import default_socket, request_status  # noqa: PLC0415 - imports asyncio
    from nodeguard.cli.render.agent_status import agent_status_output, agent_status_view  # noqa: PLC0415

    status = request_status(path or default_socket())
    if name and name != status.node:
        raise UsageError(f"the agent of this machine is that of node '{status.node}', not '{name}'")
    return document_or_text(
        agent_status_output(status), output, lambda: format_view(agent_status_view(status), CHECK)
    )


def _values_text(path: str | None, output: str) -> str:
    """Return the latest values of the agent at a socket, as text, json or yaml. Raises UsageError."""
    from nodeguard.cli.check_catalogue import load_catalogue  # noqa: PLC0415 - for one option
    from nodeguard.cli.local_agent import default_socket, request_values  # noqa: PLC0415 - imports asyncio
    from nodeguard.cli.render.agent_values import agent_values_lines, agent_values_output  # noqa: PLC0415

    values = request_values(path or default_socket())
    if is_document(output):
        return as_document(agent_values_output(values), output)
    _, signals = load_catalogue()
    return format_lines(agent_values_lines(values, signals, terminal_width() if is_terminal() else None))


def agent_text_or_raise(options: Namespace, unreachable: UnreachableError, name: str = "") -> str:
    """Return agent_text where no aggregator answers; raise the aggregator's error if no agent answers either.

    With --socket only the aggregator is asked, and no agent.
    """
    if options.socket:
        raise unreachable
    try:
        return agent_text(None, options.output, name)
    except UsageError as error:
        # The last remedy is the agent.
        aggregator = UnreachableError(unreachable.cause, unreachable.remedies[:-1])
        raise UsageError(f"{aggregator}\n{error}") from None


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard status",
        description="Show the health of the fleet: unhealthy nodes, marks, budgets, and why marks are "
        "withheld. Where only an agent runs, show its verdict, findings, detached GPUs and aggregators.",
        examples=(
            "nodeguard status -w",
            "nodeguard status -v",
            "nodeguard status --agent",
            "nodeguard status --agent --values",
            "nodeguard status -o json",
        ),
        epilog="Exit codes: 0 aggregator or agent answered; 3 neither did. Environment: "
        f"${ENVIRONMENT} and ${AGENT_SOCKET_ENVIRONMENT} name the sockets.",
    )
    parser.add_argument(
        "--agent", action="store_true", help="show the agent of this node; --socket is then its socket"
    )
    parser.add_argument(
        "--values",
        action="store_true",
        help="with --agent: show the latest temperatures, clocks, errors and link rates of GPUs and ports",
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="show all facts and the nodes of each kind of incident, also if they need more than 24 lines",
    )
    add_output(parser, "text", "json", "yaml")
    add_watch(parser)
    add_socket(parser)
    return parser
