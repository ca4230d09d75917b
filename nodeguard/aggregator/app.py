"""The aggregator application: builds the parts of one aggregator from its options and connects them."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from typing import Any, NamedTuple, Self

from nodeguard import __version__
from nodeguard.aggregator.api.handlers import ApiContext, serve_api
from nodeguard.aggregator.backends.backend import Backend
from nodeguard.aggregator.backends.kubernetes import KubernetesBackend
from nodeguard.aggregator.backends.standalone import StandaloneBackend
from nodeguard.aggregator.backends.standalone_state import StandaloneStateError, state_path
from nodeguard.aggregator.certificates.directory_store import DirectoryStore
from nodeguard.aggregator.certificates.file_certificate import FileCertificate
from nodeguard.aggregator.certificates.issue import InvalidHostError
from nodeguard.aggregator.certificates.self_signed_authority import SelfSignedAuthority
from nodeguard.aggregator.certificates.serving_certificate import (
    CertificateRefresher,
    CertificateUnavailableError,
    ServingCertificateError,
    tls_context,
)
from nodeguard.aggregator.clock import current_instant
from nodeguard.aggregator.history.component_faults import load_component_faults
from nodeguard.aggregator.history.file import history_path
from nodeguard.aggregator.history.history import History
from nodeguard.aggregator.history.writer import HistoryLimits, HistoryWriter
from nodeguard.aggregator.identity.caller import Authenticator
from nodeguard.aggregator.identity.certificate import CertificateAuthenticator
from nodeguard.aggregator.identity.insecure import WARNING, InsecureAuthenticator, NotLoopbackError
from nodeguard.aggregator.identity.signing_keys import KeysUnavailableError, SigningKeyring
from nodeguard.aggregator.identity.token import TokenRequirements
from nodeguard.aggregator.identity.token_authenticator import TokenAuthenticator
from nodeguard.aggregator.ingest.limits import IngestLimits
from nodeguard.aggregator.ingest.server import IngestServer
from nodeguard.aggregator.metrics import AggregatorMetrics
from nodeguard.aggregator.monitoring_server import Page, serve
from nodeguard.aggregator.options import AGENT_ACCOUNT, AggregatorOptions
from nodeguard.aggregator.outbox import InstructionOutbox
from nodeguard.aggregator.policy.policy_file import read_policy
from nodeguard.aggregator.policy.reload import PolicyReloader
from nodeguard.aggregator.report_handler import ReportHandler
from nodeguard.aggregator.service import AggregatorService
from nodeguard.config.errors import ConfigError
from nodeguard.fleet.planner import Planner
from nodeguard.fleet_api import service_state as service_view
from nodeguard.kube.authority_store import AuthoritySecretStore
from nodeguard.kube.client import ApiClient, ApiError
from nodeguard.kube.tokens import UnreadableError, published_keys
from nodeguard.local.open_files import connection_capacity, raise_limit
from nodeguard.local.unix_socket import acquire_state_lock
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.policy import Policy

# Seconds without a turn of the loop after which the process is not healthy: longer than a turn that waits in
# vain for an API server.
_STUCK = 60.0

# Seconds between two attempts to listen for agents.
_LISTEN_RETRY = 5.0

Log = Callable[[str], None]
OnIncident = Callable[[Incident], object]
Work = Coroutine[Any, Any, Any]


class StartError(Exception):
    """The aggregator cannot start. The message has the reason and the remedy."""


class _Access(NamedTuple):
    """How agents reach the aggregator. certificate: None for plain HTTP."""

    backend: Backend
    authenticator: Authenticator
    certificate: CertificateRefresher | None


class AggregatorApp:
    """One running aggregator. policy: reloads the policy file, None without a file."""

    def __init__(self, service: AggregatorService, policy: PolicyReloader | None, work: list[Work]) -> None:
        self.service = service
        self.policy = policy
        self._work = work

    @classmethod
    async def start(
        cls,
        options: AggregatorOptions,
        catalogue: Catalogue,
        log: Log,
        on_incident: OnIncident,
        stack: AsyncExitStack,
    ) -> Self:
        """Build the application. The stack closes what it opens. Raises StartError.

        log: receives messages for the log. on_incident: receives changed incidents in standalone mode.
        """
        checks = {check.id: check.health for check in catalogue.checks}
        policy = PolicyReloader(options.policy, checks, log) if options.policy is not None else None
        granted = IncidentState.ADVISED if options.standalone else IncidentState.MARKED
        planner = Planner(_initial_policy(policy, checks, log), checks, granted)
        outbox, wake, work = InstructionOutbox(), asyncio.Event(), list[Work]()
        if options.standalone:
            access = await _standalone(options, planner, outbox, wake, log, on_incident, stack)
        else:
            access = await _kubernetes(options, planner, outbox, wake, log, work)
        backend, authenticator, certificate = access
        stack.push_async_callback(backend.close)
        if policy is not None:
            policy.on_rejected = backend.policy_rejected
        if options.history:
            loading = asyncio.create_task(
                load_component_faults(options.history, planner.component_faults.history, log)
            )
            stack.callback(loading.cancel)
        history = _history(options, planner, backend, log, stack)
        handler = ReportHandler(planner, outbox, current_instant, wake.set, backend.node_reported, history)

        def reload(now: Instant) -> None:
            if policy is not None:
                policy(planner, now)

        service = AggregatorService(planner, backend, handler, reload, wake, log, history)
        service.capacity = room = connection_capacity(raise_limit(), IngestLimits().connections)
        log(f"accepts up to {room.connections} agent connections (limit on open files: {room.open_files})")
        ingest = IngestServer(
            authenticator,
            handler,
            certificate.context if certificate is not None else lambda: None,
            log,
            IngestLimits(connections=room.connections),
        )
        ingest.endpoint.on_refused = handler.message_refused
        if certificate is not None:
            work.append(certificate.run())
        await _serve_monitoring(options, service, ingest, policy, stack)
        if options.socket:
            await _serve_api(options.socket, service, policy, log, stack)
        work += (service.run(), _serve_agents(options, ingest, certificate, log))
        stack.push_async_callback(ingest.close)
        return cls(service, policy, work)

    def tasks(self) -> Iterable[Work]:
        """Return the coroutines that run until the aggregator stops."""
        return self._work

    def request_reload(self) -> None:
        """Read the policy file again at the next turn, even if it has not changed."""
        if self.policy is not None:
            self.policy.is_requested = True


def _initial_policy(reloader: PolicyReloader | None, checks: dict[str, Any], log: Log) -> Policy:
    if reloader is None:
        log("no --policy: observe mode, no node is marked")
        return Policy()
    try:
        policy, warnings = read_policy(reloader.file, checks, time.time())
    except ConfigError as error:
        raise StartError(str(error)) from None
    for warning in warnings:
        log(str(warning))
    return policy


def _history(
    options: AggregatorOptions, planner: Planner, backend: Backend, log: Log, stack: AsyncExitStack
) -> History | None:
    if not options.history:
        return None
    limits = HistoryLimits(options.history_days, options.history_mib)
    writer = HistoryWriter(history_path(options.history), limits)
    stack.push_async_callback(asyncio.to_thread, writer.close)
    return History(planner, backend.decisions, writer, log, current_instant().mono)


async def _standalone(
    options: AggregatorOptions,
    planner: Planner,
    outbox: InstructionOutbox,
    wake: asyncio.Event,
    log: Log,
    on_incident: OnIncident,
    stack: AsyncExitStack,
) -> _Access:
    if options.state:
        _lock_state(options.state, stack)
    try:
        path = state_path(options.state) if options.state else None
        backend = StandaloneBackend(path, planner, outbox, wake=wake.set, on_incident=on_incident, log=log)
        if options.insecure:
            insecure = InsecureAuthenticator(options.listen[0])
            log(WARNING)
            return _Access(backend, insecure, None)
        provider: FileCertificate | SelfSignedAuthority = (
            FileCertificate(options.certificate, options.key, options.client_ca)
            if options.certificate
            else SelfSignedAuthority(DirectoryStore(options.state), options.hosts, log, options.client_ca)
        )
        # An invalid certificate at the start is an error of the operator who starts it.
        tls_context(await provider.current(time.time()))
    except ServingCertificateError as error:
        files = filter(None, (options.certificate, options.key, options.client_ca))
        raise StartError(f"{', '.join(files)}: {error}") from None
    except (StandaloneStateError, NotLoopbackError, InvalidHostError, CertificateUnavailableError) as error:
        raise StartError(str(error)) from None
    return _Access(backend, CertificateAuthenticator(), CertificateRefresher(provider, log, time.time))


def _lock_state(directory: str, stack: AsyncExitStack) -> None:
    """Lock the state directory for this process. Raises StartError."""
    lock = acquire_state_lock(directory, "aggregator")
    if lock is None:
        raise StartError(
            f"--state {directory}: another aggregator on this machine uses this directory: name another"
        )
    stack.callback(lock.close)
    parent = os.path.dirname(directory)
    if not os.path.isdir(parent):
        raise StartError(f"--state {directory}: the directory {parent} does not exist: create it")


async def _kubernetes(
    options: AggregatorOptions,
    planner: Planner,
    outbox: InstructionOutbox,
    wake: asyncio.Event,
    log: Log,
    work: list[Work],
) -> _Access:
    try:
        api = await ApiClient.connect(options.kubeconfig)
    except ApiError as error:
        raise StartError(f"{error}; to run without Kubernetes, add --standalone") from None
    backend = KubernetesBackend(api, options.namespace, options.pod, planner, outbox, wake=wake.set, log=log)
    backend.begin()
    requirements = TokenRequirements(frozenset({f"{options.namespace}:{AGENT_ACCOUNT}"}))

    async def signing_keys() -> tuple[str, bytes]:
        try:
            return await published_keys(api)
        except (ApiError, UnreadableError) as error:
            raise KeysUnavailableError(str(error)) from None

    keyring = SigningKeyring(signing_keys, log)
    work.append(keyring.run(time.monotonic))
    try:
        authority = SelfSignedAuthority(AuthoritySecretStore(api, options.namespace), options.hosts, log)
    except InvalidHostError as error:
        raise StartError(str(error)) from None
    refresher = CertificateRefresher(authority, log, time.time)
    return _Access(backend, TokenAuthenticator(requirements, keyring, time.monotonic), refresher)


async def _serve_monitoring(
    options: AggregatorOptions,
    service: AggregatorService,
    ingest: IngestServer,
    policy: PolicyReloader | None,
    stack: AsyncExitStack,
) -> None:
    """Serve /metrics, /healthz and /readyz. Raises StartError."""

    def alive(_accept: str) -> Page:
        stuck = current_instant().mono - service.turned_at
        if stuck < _STUCK:
            return Page(200, "alive\n")
        return Page(503, f"no turn of the plan loop for {stuck:.0f} s\n")

    def ready(_accept: str) -> Page:
        missing = service.backend.missing_inputs()
        return Page(503, f"not read yet: {missing}\n") if missing else Page(200, "ready\n")

    metrics = AggregatorMetrics(service, ingest, policy, current_instant)
    pages = {"/metrics": metrics.page, "/healthz": alive, "/readyz": ready}
    host, port = options.metrics
    try:
        runner = await serve(host, port, pages)
    except OSError as error:
        raise StartError(f"--metrics {host}:{port}: cannot listen: {_reason(error)}: name another") from None
    stack.push_async_callback(runner.cleanup)


async def _serve_api(
    path: str,
    service: AggregatorService,
    policy: PolicyReloader | None,
    log: Log,
    stack: AsyncExitStack,
) -> None:
    """Serve the API at a socket. The aggregator runs without it if the socket cannot be created."""

    def state() -> service_view.ServiceState:
        now = current_instant()
        return service_view.ServiceState(
            leader=service.backend.leader,
            is_leader=service.is_leader,
            inactive_reason=service.inactive_reason(now),
            started=service.started_at,
            plan_age=now.mono - service.planned_at if service.plans else None,
            policy_file=str(policy.file) if policy is not None else "",
            policy_error=policy.error if policy is not None else "",
            version=__version__,
            decisions=service.backend.decisions(),
            refused=service.refusals.recent(now.mono),
            connection_shortage=service.capacity_problem,
        )

    context = ApiContext(service.planner, state, current_instant, service.backend.actions)
    try:
        await stack.enter_async_context(serve_api(path, context))
    except OSError as error:
        remedy = "nodeguard status and other commands cannot reach this aggregator; name another --socket"
        log(f"{path}: {error.strerror or error}: {remedy}")


async def _serve_agents(
    options: AggregatorOptions,
    ingest: IngestServer,
    certificate: CertificateRefresher | None,
    log: Log,
) -> None:
    """Listen for agents as soon as a serving certificate is available."""
    if certificate is not None:
        await certificate.wait_available()
    host, port = options.listen
    while True:
        try:
            await ingest.listen(host, port)
            break
        except OSError as error:
            log(
                f"--listen {host}:{port}: cannot listen: {_reason(error)}: stop the process that uses this "
                f"address, or name another; next attempt in {_LISTEN_RETRY:g} s"
            )
            await asyncio.sleep(_LISTEN_RETRY)
    log(f"listens for agents at {host}:{port}")
    await asyncio.Event().wait()


def _reason(error: OSError) -> str:
    """Return the reason of a failed bind. A server's own text repeats the address; a name that cannot be
    resolved has no error number of the system.
    """
    if error.errno and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)
    return error.strerror or str(error)
