"""Checks of the installation on a node: privileges, sources, the agent, its token and its aggregators."""

from __future__ import annotations

import base64
import socket
import ssl
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from nodeguard.agent.control import AgentStatus
from nodeguard.agent.options import ReportingOptions
from nodeguard.agent.reporting.credentials import (
    CertificateFiles,
    CredentialError,
    TlsFileError,
    TokenFile,
    tls_context,
)
from nodeguard.agent.reporting.endpoint import Address, ReplicaIps, parse_address, resolve, resolve_error
from nodeguard.doctor.diagnostics import Diagnostic, failed, passed, skipped, warning
from nodeguard.judge.formatting import format_duration
from nodeguard.model.finding import Verdict
from nodeguard.model.instant import rfc3339
from nodeguard.model.json_decoder import JsonDecoder

# The audience of the agent's token.
_AUDIENCE = "nodeguard"

# Seconds to connect to an aggregator; seconds without an acknowledgement that are normal.
_TIMEOUT = 5.0
_ACKNOWLEDGED_WITHIN = 60.0

# Characters of a reason.
_REASON = 200


def check_user(euid: int) -> Diagnostic:
    """Check that the command runs as root, as the agent does. euid: the effective user id."""
    if euid == 0:
        return passed("privileges", "runs as root")
    remedy = "run it as root; in Kubernetes the agent's container is privileged"
    return failed("privileges", f"runs as user {euid}: the kernel log and the GPUs cannot be read", remedy)


def check_sources(verdict: Verdict, sources: Iterable[str]) -> Iterator[Diagnostic]:
    """Check that each source can be read. verdict: of one reading of all sources."""
    failures: dict[str, list[str]] = {}
    for failure in verdict.read_failures:
        failures.setdefault(failure.source, []).append(f"{failure.subject}: {failure.reason}"[:_REASON])
    names = sorted({*sources, *failures})
    readable = [name for name in names if name not in failures]
    if readable:
        yield passed("sources", f"can be read: {', '.join(readable)}")
    for name in names:
        if reasons := failures.get(name):
            more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
            remedy = _SOURCE_REMEDIES.get(
                name, "see nodeguard check: it lists everything that could not be read"
            )
            yield failed(f"source {name}", f"{reasons[0]}{more}", remedy)


_SOURCE_REMEDIES = {
    "kmsg": "run as root, in a privileged container with the node's /dev; check kernel.dmesg_restrict",
    "nvml": "check nvidia-smi on the node; in a container mount the node's root at /host, with --root /host",
    "pci": "mount the node's /sys and /proc",
    "infiniband": "mount the node's /sys",
}


def check_agent(
    status: AgentStatus | None, problem: str, version: str, catalogue: str
) -> Iterator[Diagnostic]:
    """Check the running agent. status: None if it does not answer, for the problem. version: of nodeguard.
    catalogue: digest of the checks that its settings name.
    """
    if status is None:
        yield failed(
            "agent",
            problem,
            "if it does not run: systemctl start nodeguard-agent, or see its pod and its log",
        )
        return
    if status.version == version:
        yield passed("agent", f"version {status.version} runs for node {status.node}")
    else:
        message = f"version {status.version} runs, this command is {version}"
        yield warning("agent", message, "restart the agent after an upgrade")
    if status.catalogue not in {"", catalogue}:
        message = "it evaluates other checks than the files that its settings name"
        yield warning(
            "agent's checks",
            message,
            "reload it: systemctl reload nodeguard-agent, or restart its pod; see its log for invalid files",
        )
    if status.unread:
        message = f"not read yet: {', '.join(status.unread)}"
        yield warning("agent's sources", message, "wait for the first reading, then see nodeguard status")
    if status.state_error:
        message = f"its state is not on a disk: {status.state_error}"
        yield warning(
            "agent's state", message, "make its --state directory writable: a restart loses the state"
        )
    yield from _check_acknowledgements(status)


def _check_acknowledgements(status: AgentStatus) -> Iterator[Diagnostic]:
    if not status.acknowledged_at:
        yield skipped("reports", "the agent reports to no aggregator")
    for name, at in status.acknowledged_at.items():
        if at is None:
            message, remedy = "never acknowledged a message", "see the agent's log for the reason"
            yield failed(f"reports to {name}", message, remedy)
        elif status.at - at > _ACKNOWLEDGED_WITHIN:
            message = f"no acknowledgement for {format_duration(status.at - at)}"
            yield failed(f"reports to {name}", message, "see the agent's log for the reason")
        else:
            yield passed(
                f"reports to {name}", f"acknowledged {format_duration(max(0.0, status.at - at))} ago"
            )


class _TokenClaims(Struct, frozen=True):
    """The claims of a service account token that the aggregator uses."""

    aud: tuple[str, ...] | str = ()
    exp: float = 0.0
    kubernetes: dict[str, msgspec.Raw] = msgspec.field(name="kubernetes.io", default_factory=dict)


class _NodeReference(Struct, frozen=True):
    name: str = ""


def check_token(options: ReportingOptions, node: str, now: float) -> Diagnostic:
    """Check the claims of the agent's token, not its signature. now: seconds since the epoch."""
    name = "token"
    if not options.token_file:
        return skipped(name, "the agent uses no token")
    try:
        claims = _claims(TokenFile(options.token_file).token())
    except CredentialError as error:
        return failed(name, str(error), "see docs/install/kubernetes.md: How agents find the aggregators")
    except ValueError:
        message = f"{options.token_file} is not a service account token"
        return failed(name, message, "project a service account token with audience nodeguard there")
    audiences = (claims.aud,) if isinstance(claims.aud, str) else claims.aud
    if _AUDIENCE not in audiences:
        message = f"its audience is {', '.join(audiences) or 'missing'}, not {_AUDIENCE}"
        return failed(name, message, "set audience: nodeguard in the projected volume")
    if claims.exp <= now:
        message = f"it expired at {rfc3339(claims.exp)}"
        return failed(name, message, "check the clock of the node, and that its kubelet renews the token")
    bound = _bound_node(claims)
    if not bound:
        message = "it names no node"
        return failed(name, message, "use Kubernetes 1.30 or newer, and the token of a pod")
    if bound != node:
        message = f"it is of node {bound}, and the agent reports for {node}"
        return failed(name, message, "set NODE_NAME from spec.nodeName, or remove --node")
    return passed(name, f"names node {bound}, valid until {rfc3339(claims.exp)}")


def _claims(token: str) -> _TokenClaims:
    payload = token.split(".")[1] if token.count(".") == 2 else ""
    return JsonDecoder(_TokenClaims).decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))


def _bound_node(claims: _TokenClaims) -> str:
    try:
        return JsonDecoder(_NodeReference).decode(claims.kubernetes.get("node", msgspec.Raw(b"{}"))).name
    except msgspec.DecodeError:
        return ""


def check_aggregators(options: ReportingOptions) -> Iterator[Diagnostic]:
    """Check that each aggregator can be reached with a valid certificate. Connects, and sends nothing."""
    files = None
    if options.certificate_file:
        files = CertificateFiles(options.certificate_file, options.key_file)
    for text in options.addresses:
        address = parse_address(text)
        name = f"aggregator {address.name}"
        try:
            context = tls_context(options.ca_file or None, files) if address.tls else None
            replicas = ((address.host,),) if address.is_fixed else resolve(address)
        except TlsFileError as error:
            yield failed(name, str(error), "correct aggregator.ca_file or certificate_file")
        except (OSError, ValueError) as error:
            yield failed(
                name, resolve_error(error), "in a pod, check DNS and the Service nodeguard-aggregator"
            )
        else:
            for replica in replicas:
                yield _check_connection(name, address, replica, context)


def _check_connection(
    name: str, address: Address, replica: ReplicaIps, context: ssl.SSLContext | None
) -> Diagnostic:
    where = f"{replica[0]} port {address.port}"
    try:
        with socket.create_connection((replica[0], address.port), _TIMEOUT) as connection:
            if context is None:
                return passed(name, f"{where} answers, without TLS")
            with context.wrap_socket(connection, server_hostname=address.host) as secured:
                return passed(name, f"{where} answers with a valid certificate, {secured.version()}")
    except ssl.SSLCertVerificationError as error:
        remedy = "check aggregator.ca_file, the name in the address, and the clock of the node"
        return failed(name, f"{where}: its certificate is refused: {error.verify_message}", remedy)
    except (OSError, TimeoutError) as error:
        reason = getattr(error, "strerror", None) or str(error) or "no answer"
        remedy = "check that it runs, and that firewalls and NetworkPolicies let nodes reach it"
        return failed(name, f"{where}: {reason}", remedy)
