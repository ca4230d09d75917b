"""nodeguard doctor: whether nodeguard itself is installed correctly, on this node or in a cluster."""

from __future__ import annotations

import asyncio
import os
import time
from argparse import Namespace
from collections.abc import Iterable

from nodeguard import __version__
from nodeguard.agent.options import OptionsFile, read_options_file
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.local_agent import add_socket, request_status
from nodeguard.cli.options import (
    USER_KUBECONFIG,
    add_kubeconfig,
    add_output,
    add_root,
    require_for_kubeconfig,
)
from nodeguard.cli.render.doctor import diagnostics_view
from nodeguard.cli.render.terminal import format_view
from nodeguard.cli.streams import document_or_text, print_output
from nodeguard.cli.usage import FATAL, MISSING_EXTRA, OK, UNKNOWN, WARNING, ArgumentParser, UsageError
from nodeguard.doctor.diagnostics import Diagnostic, DiagnosticStatus

# The settings of the agent in packages and in the chart.
_CONFIG = "/etc/nodeguard/agent.yaml"

# Seconds for the reading of all sources.
_TIMEOUT = 60.0

_EXIT_CODES = {
    DiagnosticStatus.PASSED: OK,
    DiagnosticStatus.SKIPPED: OK,
    DiagnosticStatus.WARNING: WARNING,
    DiagnosticStatus.FAILED: FATAL,
}


def run(options: Namespace) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    require_for_kubeconfig(options, "--cluster", is_set=options.cluster)
    results = list(asyncio.run(_check_cluster(options)) if options.cluster else _check_node(options))
    print_output(document_or_text(results, options.output, lambda: format_view(diagnostics_view(results))))
    return max((_EXIT_CODES[result.status] for result in results), default=UNKNOWN)


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard doctor",
        description="Check that nodeguard is installed correctly: what is wrong, and how to fix it.",
        examples=(
            "nodeguard doctor",
            "nodeguard doctor --cluster",
            "nodeguard doctor --cluster --context prod",
        ),
        epilog="Exit codes: 0 passed, 1 warning, 2 failed, 3 usage error.",
    )
    add = parser.add_argument
    add("--cluster", action="store_true", help="check the installation in a cluster, as kubectl reaches it")
    add("-n", "--namespace", default="nodeguard", metavar="NAME", help="namespace of nodeguard (nodeguard)")
    add_kubeconfig(parser, "with --cluster", USER_KUBECONFIG)
    add("--config", metavar="FILE", help=f"settings of the agent (default: {_CONFIG} if it exists)")
    add_root(parser)
    add_socket(parser)
    add_output(parser, "text", "json", "yaml")
    return parser


def _check_node(options: Namespace) -> Iterable[Diagnostic]:
    from nodeguard.agent.reporting.reporter import catalogue_digest  # noqa: PLC0415 - a cluster needs no agent
    from nodeguard.derive.derive import PlatformHints  # noqa: PLC0415
    from nodeguard.doctor import node  # noqa: PLC0415
    from nodeguard.pipeline.one_shot import evaluate_live  # noqa: PLC0415
    from nodeguard.pipeline.pipeline import Pipeline  # noqa: PLC0415
    from nodeguard.sources.machines.live import LiveMachine  # noqa: PLC0415
    from nodeguard.sources.registry import all_sources  # noqa: PLC0415

    settings = _settings(options.config)
    catalogue, signals = load_catalogue(settings.checks)
    sources = all_sources(catalogue.patterns)
    pipeline = Pipeline(catalogue, signals, PlatformHints(), one_shot=True)
    yield node.check_user(os.geteuid())
    with LiveMachine(options.root or "") as machine:
        verdict = evaluate_live(machine, sources, pipeline, 0.0, _TIMEOUT)
    yield from node.check_sources(verdict, (source.name for source in sources))
    status, problem = None, ""
    try:
        status = request_status(options.socket)
    except UsageError as error:
        problem = str(error)
    yield from node.check_agent(status, problem, __version__, catalogue_digest(catalogue))
    if settings.aggregator is not None:
        name = settings.node or os.environ.get("NODE_NAME") or os.uname().nodename
        yield node.check_token(settings.aggregator, name, time.time())
        yield from node.check_aggregators(settings.aggregator)


def _settings(path: str | None) -> OptionsFile:
    """Return the settings of the agent; the defaults if there is no file. Raises ConfigError."""
    if path is None and not os.path.exists(_CONFIG):
        return OptionsFile()
    return read_options_file(path or _CONFIG)


async def _check_cluster(options: Namespace) -> Iterable[Diagnostic]:
    try:
        from nodeguard.doctor.cluster import CHECKS  # noqa: PLC0415 - needs the aggregator's packages
        from nodeguard.doctor.cluster_reader import read_cluster  # noqa: PLC0415
        from nodeguard.kube.access import user_kubeconfig  # noqa: PLC0415
        from nodeguard.kube.client import ApiClient, ApiError  # noqa: PLC0415
    except ModuleNotFoundError:
        raise UsageError(MISSING_EXTRA) from None
    try:
        client = await ApiClient.connect(user_kubeconfig(options.kubeconfig), options.context)
        try:
            objects = await read_cluster(client, options.namespace)
        finally:
            await client.close()
    except ApiError as error:
        raise UsageError(f"the cluster cannot be read: {error.message}") from None
    return [check(objects) for check in CHECKS]
