"""`nodeguard aggregator`: parses the options, starts the log output, and runs the aggregator."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from argparse import ArgumentTypeError, Namespace
from contextlib import AsyncExitStack, closing
from pathlib import Path

from nodeguard.aggregator.api.requests import SOCKET_PATH
from nodeguard.aggregator.options import SERVICE_NAME, AggregatorOptions
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.options import add_checks, add_kubeconfig, directory
from nodeguard.cli.usage import MISSING_EXTRA, OK, UNKNOWN, ArgumentParser, UsageError, address
from nodeguard.local.logs import FORMATS, LEVELS, start_logging
from nodeguard.model.failure import UserError
from nodeguard.model.projection import project

logger = logging.getLogger(__name__)

_LISTEN = "127.0.0.1:8443"
_METRICS = "127.0.0.1:9435"

# Where the status page listens as shipped: in the pod, and under systemd. Hosts at which it may listen.
PAGE = "127.0.0.1:9436"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")

# Limits of a history in days and MiB. The current state of 7,500 nodes takes 61 MiB.
_MAX_DAYS = 3650
_MIN_MIB, _MAX_MIB = 16, 1 << 20


def run(parsed: Namespace) -> int:
    """Run the aggregator until it is stopped. Returns the exit code. Raises UsageError."""
    options = aggregator_options(parsed)
    try:
        import uvloop  # noqa: PLC0415 - for this command only
    except ModuleNotFoundError:
        raise UsageError(MISSING_EXTRA) from None
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(options))


async def _run(options: AggregatorOptions) -> int:
    from nodeguard.aggregator.app import AggregatorApp  # noqa: PLC0415 - imports the servers

    catalogue, _ = load_catalogue(options.checks)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    # In standalone mode there is no pod, and each incident is logged with its own node.
    fields = {} if options.standalone else {"pod": options.pod}
    with closing(start_logging(options.log_level, options.log_format, fields)):
        async with AsyncExitStack() as stack:
            app = await AggregatorApp.start(options, catalogue, stack)
            loop.add_signal_handler(signal.SIGHUP, app.request_reload)
            # The objects of the start live until the end: searching them for garbage finds nothing.
            gc.freeze()
            gc.enable()
            stopping = asyncio.create_task(stopped.wait())
            tasks = [asyncio.create_task(work) for work in app.tasks()]
            done, _ = await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in (stopping, *tasks):
                task.cancel()
            await asyncio.gather(stopping, *tasks, return_exceptions=True)
            failed = [task for task in done if task is not stopping]
            for task in failed:
                problem = None if task.cancelled() else task.exception()
                if isinstance(problem, UserError):
                    logger.error("the aggregator ends", extra={"error": str(problem)})
                    continue
                fields = {"error": f"{type(problem).__name__}: {problem}"}
                logger.error("internal error, please report it", extra=fields)
        if not failed:
            logger.info("aggregator stopped")
        return UNKNOWN if failed else OK


def aggregator_options(parsed: Namespace) -> AggregatorOptions:
    """Return the options of a parsed command line and of the pod's environment. Raises UsageError."""
    _check_combination(parsed)
    namespace = os.environ.get("POD_NAMESPACE", "nodeguard")
    pod_address = os.environ.get("POD_IP", "")
    service = f"{SERVICE_NAME}.{namespace}.svc"
    default_hosts = (service, f"{service}.cluster.local", *((pod_address,) if pod_address else ()))
    return project(
        AggregatorOptions,
        parsed,
        policy=Path(parsed.policy) if parsed.policy else None,
        checks=tuple(parsed.checks),
        state=str(Path(parsed.state).absolute()) if parsed.state else "",
        read_jobs=not parsed.no_jobs,
        kubeconfig=parsed.kubeconfig or os.environ.get("KUBECONFIG") or None,
        namespace=namespace,
        pod=os.environ.get("POD_NAME") or os.uname().nodename,
        hosts=tuple(parsed.cert_host) or default_hosts,
        history=str(Path(parsed.history).absolute()) if parsed.history else "",
        history_mib=parsed.history_size,
        notifications=Path(parsed.notifications) if parsed.notifications else None,
    )


def _check_combination(parsed: Namespace) -> None:
    """Check that the options go together. Raises UsageError."""
    if parsed.standalone:
        _check_standalone(parsed)
    else:
        for name in ("state", "client_ca", "insecure"):
            if getattr(parsed, name):
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"{option} is for --standalone only: remove it, or add --standalone")
        if len({bool(parsed.certificate), bool(parsed.key), bool(parsed.publish_ca)}) > 1:
            raise UsageError(
                "--certificate, --key and --publish-ca go together: set all, or none to have one issued"
            )


def _check_standalone(parsed: Namespace) -> None:
    for name in ("publish_ca", "kubeconfig", "context"):
        if getattr(parsed, name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} is for Kubernetes only: remove it, or remove --standalone")
    if not (parsed.insecure or parsed.client_ca):
        raise UsageError(
            "--standalone needs --client-ca, the CA certificate of the agents, or --insecure for this "
            "machine only"
        )
    if parsed.insecure and (parsed.client_ca or parsed.certificate):
        raise UsageError("--insecure excludes --client-ca and --certificate: remove either")
    if bool(parsed.certificate) != bool(parsed.key):
        raise UsageError("--certificate and --key go together: set both, or neither to have one issued")
    if not (parsed.insecure or parsed.certificate or parsed.state):
        raise UsageError(
            "an issued certificate is stored: set --state, or give a certificate with --certificate and --key"
        )
    if not (parsed.insecure or parsed.certificate or parsed.cert_host):
        raise UsageError(
            "an issued certificate needs a host name: set --cert-host to the name by which agents reach this "
            "machine"
        )


def _page(text: str) -> tuple[str, int] | str:
    """Return a loopback address, or the path of a socket. Raises ArgumentTypeError."""
    if "/" in text:
        return str(Path(text).absolute())
    host, port = address(text)
    if host not in _LOOPBACK:
        raise ArgumentTypeError(
            f"'{text}' is open to the network, and the page has no login: use 127.0.0.1:{port} with kubectl "
            "port-forward, ssh -L, or a reverse proxy on this machine that authenticates"
        )
    return host, port


def _days(text: str) -> float:
    """Return a number of days. Raises ArgumentTypeError."""
    return _number(text, text.removesuffix("d"), "days", 1, _MAX_DAYS)


def _mib(text: str) -> float:
    """Return a number of MiB. Raises ArgumentTypeError."""
    return _number(text, text, "MiB", _MIN_MIB, _MAX_MIB)


def _number(text: str, digits: str, unit: str, least: int, most: int) -> float:
    if not (digits.isascii() and digits.isdigit()):
        raise ArgumentTypeError(f"'{text}' is invalid: expected {unit} from {least} to {most}")
    if not least <= int(digits[:8]) <= most:
        size = "small" if int(digits[:8]) < least else "large"
        raise ArgumentTypeError(f"'{text}' is too {size}: expected {unit} from {least} to {most}")
    return float(digits)


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard aggregator",
        description="Collect the reports of agents and quarantine unhealthy nodes within a budget.",
        examples=(
            "nodeguard aggregator --policy policy.yaml --page 127.0.0.1:9436",
            "nodeguard aggregator --standalone --insecure --state /var/lib/nodeguard",
        ),
    )
    add = parser.add_argument
    add("--listen", metavar="HOST:PORT", type=address, default=address(_LISTEN),
        help=f"address for the reports of agents ({_LISTEN})")  # fmt: skip
    add("--metrics", metavar="HOST:PORT", type=address, default=address(_METRICS),
        help=f"address for /metrics, /healthz and /readyz ({_METRICS})")  # fmt: skip
    add(
        "--page",
        metavar="HOST:PORT|PATH",
        type=_page,
        help=f"serve the status page, at a loopback address such as {PAGE}, or at a socket",
    )
    add("--policy", metavar="FILE", help="policy file (default: observe only, a dry run)")
    add(
        "--socket",
        metavar="PATH",
        default=SOCKET_PATH,
        help=f"socket for nodeguard status, pause and other commands ({SOCKET_PATH})",
    )
    add_checks(parser)
    add("--standalone", action="store_true", help="run without Kubernetes: marks are only advised")
    add("--state", metavar="DIR", type=directory, help="standalone: directory for state and certificates")
    add(
        "--client-ca",
        metavar="FILE",
        default="",
        help="standalone: CA certificate that signed the agents' certificates (PEM)",
    )
    add(
        "--certificate",
        metavar="FILE",
        default="",
        help="serving certificate (PEM); without it one is issued",
    )
    add("--key", metavar="FILE", default="", help="key of the serving certificate (PEM)")
    add(
        "--publish-ca",
        metavar="FILE",
        default="",
        help="Kubernetes: CA certificate that signed --certificate (PEM), to publish to agents",
    )
    add_kubeconfig(parser, "Kubernetes", "$KUBECONFIG")
    add("--no-jobs", action="store_true", help="Kubernetes: do not read pods; incidents name no jobs")
    add(
        "--cert-host",
        metavar="NAME",
        action="append",
        default=[],
        help="host name or address in the issued certificate (repeatable)",
    )
    add("--history", metavar="DIR|FILE", type=directory, help="record the history of the fleet for backtests")
    add("--history-days", metavar="DAYS", type=_days, default=30.0, help="days of history to keep (30)")
    add("--history-size", metavar="MIB", type=_mib, default=256.0, help="maximum size of the history (256)")
    add("--notifications", metavar="FILE", help="file with webhooks that receive changes of incidents")
    add("--insecure", action="store_true", help="standalone: accept agents without credentials, on loopback")
    add(
        "--log-format",
        choices=FORMATS,
        default="auto",
        help="log output: json, text, or auto: text on a terminal, else JSON (auto)",
    )
    add("--log-level", choices=LEVELS, default="info", help="lowest level of logged records (info)")
    return parser
