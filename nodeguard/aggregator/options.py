"""What nodeguard aggregator is told on its command line and by the pod that it runs in."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from nodeguard.aggregator.api.requests import SOCKET_PATH
from nodeguard.cli.options import add_checks, directory
from nodeguard.cli.usage import ArgumentParser, UsageError, address

_LISTEN = "127.0.0.1:8443"
_METRICS = "127.0.0.1:9435"

# The name under which agents reach it in a cluster, and the service account that they have there.
SERVICE_NAME = "nodeguard-aggregator"
AGENT_ACCOUNT = "nodeguard-agent"

# Days and MiB of a history; what holds now of 7,500 nodes takes 61 MiB.
_DAYS = 3650
_SMALLEST, _LARGEST = 16, 1 << 20


class AggregatorOptions(Struct, frozen=True):
    """What the aggregator is told.

    listen, metrics: host and port. policy: its file, None for the default. socket: where people ask, empty
    for nowhere. checks: folders of a site's own. standalone: without Kubernetes; the next four are for that
    alone. state: directory to remember in. client_ca: who signs agents' certificates; certificate, key:
    its own. insecure: whether agents need not say who they are. kubeconfig: None in a pod. namespace, pod,
    address: of its own pod. hosts: names under which agents reach it.
    history: file or directory to keep what was told in, empty for none; history_days, history_mib: how much.
    """

    listen: tuple[str, int]
    metrics: tuple[str, int]
    policy: Path | None
    socket: str
    checks: tuple[str, ...]
    standalone: bool
    state: str
    client_ca: str
    certificate: str
    key: str
    insecure: bool
    kubeconfig: str | None
    namespace: str
    pod: str
    hosts: tuple[str, ...]
    history: str
    history_days: float
    history_mib: float


def options(arguments: Sequence[str]) -> AggregatorOptions:
    """What a command line says. Raises UsageError where it is wrong."""
    given = _parser().parse_args(arguments)
    _fits(given)
    namespace = os.environ.get("POD_NAMESPACE", "nodeguard")
    own = os.environ.get("POD_IP", "")
    service = f"{SERVICE_NAME}.{namespace}.svc"
    return AggregatorOptions(
        listen=given.listen,
        metrics=given.metrics,
        policy=Path(given.policy) if given.policy else None,
        socket=given.socket,
        checks=tuple(given.checks),
        standalone=given.standalone,
        state=str(Path(given.state).absolute()) if given.state else "",
        client_ca=given.client_ca,
        certificate=given.certificate,
        key=given.key,
        insecure=given.insecure,
        kubeconfig=os.environ.get("KUBECONFIG") or None,
        namespace=namespace,
        pod=os.environ.get("POD_NAME") or os.uname().nodename,
        hosts=tuple(given.host) or (service, f"{service}.cluster.local", *((own,) if own else ())),
        history=str(Path(given.history).absolute()) if given.history else "",
        history_days=given.history_days,
        history_mib=given.history_size,
    )


def _fits(given: Namespace) -> None:
    """Raises UsageError where options do not go together."""
    if not given.standalone:
        for name in ("state", "client_ca", "certificate", "key", "insecure"):
            if getattr(given, name):
                raise UsageError(
                    f"--{name.replace('_', '-')} goes with --standalone: a cluster has its own way"
                )
        return
    if not (given.insecure or given.client_ca):
        raise UsageError(
            "--standalone needs --client-ca, the certificates of who signs those of the agents, "
            "or --insecure, on this machine alone"
        )
    if given.insecure and (given.client_ca or given.certificate):
        raise UsageError("--insecure goes without certificates: leave either away")
    if bool(given.certificate) != bool(given.key):
        raise UsageError("--certificate and --key go together: name both, or neither to have one made")
    if not (given.insecure or given.certificate or given.state):
        raise UsageError(
            "a certificate that is made is kept: name a --state, or a --certificate and its --key"
        )
    if not (given.insecure or given.certificate or given.host):
        raise UsageError(
            "a certificate that is made is made for names: say --host, as agents call this machine"
        )


def _days(text: str) -> float:
    """A number of days. Raises ArgumentTypeError."""
    number = text.removesuffix("d")
    if not (number.isascii() and number.isdigit() and 0 < int(number[:6]) <= _DAYS):
        raise ArgumentTypeError(f"'{text}' is no number of days: write one from 1 to {_DAYS}")
    return float(number)


def _size(text: str) -> float:
    """A number of MiB. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdigit() and _SMALLEST <= int(text[:8]) <= _LARGEST):
        raise ArgumentTypeError(f"'{text}' is no number of MiB: write one from {_SMALLEST} to {_LARGEST}")
    return float(text)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="nodeguard aggregator",
        description="Hear agents, plan inside a budget, and keep work off what is sick.",
    )
    add = parser.add_argument
    add("--listen", metavar="HOST:PORT", type=address, default=address(_LISTEN),
        help=f"where agents report ({_LISTEN})")  # fmt: skip
    add("--metrics", metavar="HOST:PORT", type=address, default=address(_METRICS),
        help=f"where to serve /metrics, /healthz and /readyz ({_METRICS})")  # fmt: skip
    add(
        "--policy",
        metavar="FILE",
        help="what may be done; without it nothing is, and it is said what would be",
    )
    add(
        "--socket",
        metavar="PATH",
        default=SOCKET_PATH,
        help=f"where people ask: status, pause and others ({SOCKET_PATH})",
    )
    add_checks(parser)
    add("--standalone", action="store_true", help="without Kubernetes: the plan is advice")
    add("--state", metavar="DIR", type=directory, help="standalone: remember decisions and certificates here")
    add(
        "--client-ca",
        metavar="FILE",
        default="",
        help="standalone: who signs the certificates of agents, in PEM",
    )
    add("--certificate", metavar="FILE", default="", help="standalone: its own, in PEM; else one is made")
    add("--key", metavar="FILE", default="", help="standalone: the certificate's key, in PEM")
    add("--host", metavar="NAME", action="append", default=[], help="a name under which agents reach it")
    add(
        "--history",
        metavar="DIR|FILE",
        type=directory,
        help="keep what was told of the fleet here, for backtests",
    )
    add("--history-days", metavar="DAYS", type=_days, default=30.0, help="for so many days (30)")
    add("--history-size", metavar="MIB", type=_size, default=256.0, help="and in so many MiB at most (256)")
    add(
        "--insecure", action="store_true", help="standalone: agents need not say who they are; loopback alone"
    )
    return parser
