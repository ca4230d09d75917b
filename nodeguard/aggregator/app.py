"""An aggregator put together from its parts."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from typing import Any, Self

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
from nodeguard.aggregator.history.component_faults import load_component_faults
from nodeguard.aggregator.history.file import history_path
from nodeguard.aggregator.history.history import History
from nodeguard.aggregator.history.writer import HistoryLimits, HistoryWriter
from nodeguard.aggregator.identity.caller import Authenticator
from nodeguard.aggregator.identity.certificate import CertificateAuthenticator
from nodeguard.aggregator.identity.insecure import WARNING, InsecureAuthenticator, NotLoopbackError
from nodeguard.aggregator.identity.review import Reviews
from nodeguard.aggregator.identity.signing_keys import SigningKeyring
from nodeguard.aggregator.identity.token import TokenRequirements
from nodeguard.aggregator.identity.token_authenticator import TokenAuthenticator
from nodeguard.aggregator.ingest.limits import IngestLimits
from nodeguard.aggregator.ingest.server import IngestServer
from nodeguard.aggregator.metrics import render_metrics
from nodeguard.aggregator.monitoring_server import serve
from nodeguard.aggregator.options import AGENT_ACCOUNT, AggregatorOptions
from nodeguard.aggregator.outbox import InstructionOutbox
from nodeguard.aggregator.policy.policy_file import read_policy
from nodeguard.aggregator.policy.reload import PolicyReloader
from nodeguard.aggregator.report_handler import ReportHandler
from nodeguard.aggregator.service import AggregatorService, current_instant
from nodeguard.config.yaml_document import ConfigError
from nodeguard.fleet.planner import Planner
from nodeguard.fleet_api import service_state as told_service
from nodeguard.kube.authority_store import AuthoritySecretStore
from nodeguard.kube.client import ApiClient, ApiError
from nodeguard.local.open_files import connection_capacity, raise_limit
from nodeguard.local.state_lock import acquire_state_lock
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.policy import Policy

# Seconds without a turn of the loop after which it counts as stuck: more than a turn takes that waits for an
# API server in vain.
_STUCK = 60.0

Tell = Callable[[str], None]
Happened = Callable[[Incident], object]
Work = Coroutine[Any, Any, Any]


class StartError(Exception):
    """Why an aggregator cannot begin, and the remedy."""


class AggregatorApp:
    """What runs. policy: its file, None for none."""

    def __init__(self, service: AggregatorService, policy: PolicyReloader | None, work: list[Work]) -> None:
        self.service = service
        self.policy = policy
        self._work = work

    @classmethod
    async def start(
        cls,
        told: AggregatorOptions,
        catalogue: Catalogue,
        tell: Tell,
        happened: Happened,
        stack: AsyncExitStack,
    ) -> Self:
        """Put it together; what it opens is closed with the stack. Raises StartError.

        tell: takes sentences for the log. happened: is told of incidents where no Kubernetes is.
        """
        checks = {check.id: check.health for check in catalogue.checks}
        file = PolicyReloader(told.policy, checks, tell) if told.policy is not None else None
        granted = IncidentState.ADVISED if told.standalone else IncidentState.MARKED
        planner = Planner(_policy(file, checks, tell), checks, granted)
        outbox, woken, work = InstructionOutbox(), asyncio.Event(), list[Work]()
        if told.standalone:
            world, identity, trust = await _alone(told, planner, outbox, woken, tell, happened, stack)
        else:
            world, identity, trust = await _in_cluster(told, planner, outbox, woken, tell, work)
        stack.push_async_callback(world.close)
        if file is not None:
            file.on_rejected = world.policy_rejected
        if told.history:
            recalling = asyncio.create_task(
                load_component_faults(told.history, planner.component_faults.history, tell)
            )
            stack.callback(recalling.cancel)
        history = _history(told, planner, world, tell, stack)
        hearing = ReportHandler(planner, outbox, current_instant, woken.set, world.node_reported, history)

        def reload(now: Instant) -> None:
            if file is not None:
                file(planner, now)

        service = AggregatorService(planner, world, hearing, reload, woken, tell, history)
        room = connection_capacity(raise_limit(), IngestLimits().connections)
        service.capacity = room
        tell(f"up to {room.connections} agents can connect: the limit on open files is {room.open_files}")
        shown = trust.context if trust is not None else lambda: None
        ingest = IngestServer(identity, hearing, shown, tell, IngestLimits(connections=room.connections))
        ingest.endpoint.on_refused = hearing.message_refused
        if trust is not None:
            work.append(trust.run())
        await _listen(told, service, ingest, file, stack)
        if told.socket:
            await _ask_at(told.socket, service, file, tell, stack)
        work += (service.run(), _hear(told, ingest, trust, tell))
        stack.push_async_callback(ingest.close)
        return cls(service, file, work)

    def tasks(self) -> Iterable[Work]:
        """What is to be run, all of it until the end."""
        return self._work

    def request_reload(self) -> None:
        """Read the policy again, changed or not."""
        if self.policy is not None:
            self.policy.is_requested = True


def _policy(file: PolicyReloader | None, checks: dict[str, Any], tell: Tell) -> Policy:
    if file is None:
        tell("no --policy: everything is observed, and nothing is marked")
        return Policy()
    try:
        policy, doubts = read_policy(file.file, checks, time.time())
    except ConfigError as error:
        raise StartError(str(error)) from None
    for doubt in doubts:
        tell(str(doubt))
    return policy


def _history(
    told: AggregatorOptions, planner: Planner, world: Backend, tell: Tell, stack: AsyncExitStack
) -> History | None:
    if not told.history:
        return None
    writer = HistoryWriter(history_path(told.history), HistoryLimits(told.history_days, told.history_mib))
    stack.push_async_callback(asyncio.to_thread, writer.close)
    return History(planner, world.decisions, writer, tell, current_instant().mono)


async def _alone(
    told: AggregatorOptions,
    planner: Planner,
    outbox: InstructionOutbox,
    woken: asyncio.Event,
    tell: Tell,
    happened: Happened,
    stack: AsyncExitStack,
) -> tuple[Backend, Authenticator, CertificateRefresher | None]:
    if told.state:
        held = acquire_state_lock(told.state, "aggregator")
        if held is None:
            raise StartError(
                f"another aggregator on this machine remembers in {told.state}: name another --state"
            )
        stack.callback(held.close)
        above = os.path.dirname(told.state)
        if not os.path.isdir(above):
            raise StartError(f"--state {told.state}: there is no directory {above}: make it, or name another")
    try:
        kept = state_path(told.state) if told.state else None
        world = StandaloneBackend(kept, planner, outbox, news=woken.set, happened=happened, tell=tell)
        if told.insecure:
            anybody = InsecureAuthenticator(told.listen[0])
            tell(WARNING)
            return world, anybody, None
        shower: FileCertificate | SelfSignedAuthority = (
            FileCertificate(told.certificate, told.key, told.client_ca)
            if told.certificate
            else SelfSignedAuthority(DirectoryStore(told.state), told.hosts, tell, told.client_ca)
        )
        # What is wrong at the start is put right by whoever starts it.
        tls_context(await shower.current(time.time()))
    except ServingCertificateError as error:
        files = filter(None, (told.certificate, told.key, told.client_ca))
        raise StartError(f"{', '.join(files)}: {error}") from None
    except (StandaloneStateError, NotLoopbackError, InvalidHostError, CertificateUnavailableError) as error:
        raise StartError(str(error)) from None
    return world, CertificateAuthenticator(), CertificateRefresher(shower, tell, time.time)


async def _in_cluster(
    told: AggregatorOptions,
    planner: Planner,
    outbox: InstructionOutbox,
    woken: asyncio.Event,
    tell: Tell,
    work: list[Work],
) -> tuple[Backend, Authenticator, CertificateRefresher]:
    try:
        api = await ApiClient.connect(told.kubeconfig)
    except ApiError as error:
        raise StartError(f"{error}; without Kubernetes, say --standalone") from None
    world = KubernetesBackend(api, told.namespace, told.pod, planner, outbox, news=woken.set, tell=tell)
    world.begin()
    expected = TokenRequirements(frozenset({f"{told.namespace}:{AGENT_ACCOUNT}"}))
    reviews = Reviews(api, expected, lambda name: planner.state.uid(name) or None, time.time)
    keyring = SigningKeyring(reviews.keys, tell)
    work.append(keyring.run(time.monotonic))
    try:
        keeper = SelfSignedAuthority(AuthoritySecretStore(api, told.namespace), told.hosts, tell)
    except InvalidHostError as error:
        raise StartError(str(error)) from None
    trust = CertificateRefresher(keeper, tell, time.time)
    return world, TokenAuthenticator(expected, keyring, reviews, time.monotonic), trust


async def _listen(
    told: AggregatorOptions,
    service: AggregatorService,
    ingest: IngestServer,
    file: PolicyReloader | None,
    stack: AsyncExitStack,
) -> None:
    """Serve the pages for machines. Raises StartError."""

    def alive() -> tuple[int, str]:
        stuck = current_instant().mono - service.turned_at
        return (200, "alive\n") if stuck < _STUCK else (503, f"the loop has not turned for {stuck:.0f} s\n")

    def ready() -> tuple[int, str]:
        unknown = service.backend.missing_inputs()
        return (503, f"not known yet: {unknown}\n") if unknown else (200, "ready\n")

    pages = {
        "/metrics": lambda: (200, render_metrics(service, ingest, file, current_instant())),
        "/healthz": alive,
        "/readyz": ready,
    }
    host, port = told.metrics
    try:
        runner = await serve(host, port, pages)
    except OSError as error:
        raise StartError(f"cannot listen on {host}:{port}: {_why(error)}: name another --metrics") from None
    stack.push_async_callback(runner.cleanup)


async def _ask_at(
    path: str, service: AggregatorService, file: PolicyReloader | None, tell: Tell, stack: AsyncExitStack
) -> None:
    """Let people ask at a socket; the aggregator does without where that cannot be."""

    def known() -> told_service.ServiceState:
        return told_service.ServiceState(
            leader=service.backend.leader,
            is_leader=service.is_leader,
            inactive_reason=service.inactive_reason(current_instant()),
            started=service.started_at,
            plan_age=current_instant().mono - service.planned_at if service.plans else None,
            policy_file=str(file.file) if file is not None else "",
            policy_error=file.error if file is not None else "",
            version=__version__,
            decisions=service.backend.decisions(),
            refused=service.refusals.recent(current_instant().mono),
            connection_shortage=service.capacity_problem,
        )

    try:
        await stack.enter_async_context(
            serve_api(path, ApiContext(service.planner, known, current_instant, service.backend.actions))
        )
    except OSError as error:
        remedy = "nodeguard status and others cannot reach this aggregator; name a --socket"
        tell(f"{path}: {error.strerror or error}: {remedy}")


async def _hear(
    told: AggregatorOptions, ingest: IngestServer, trust: CertificateRefresher | None, tell: Tell
) -> None:
    """Hear agents, once there is a certificate to show."""
    if trust is not None:
        await trust.wait_available()
    host, port = told.listen
    while True:
        try:
            await ingest.listen(host, port)
            break
        except OSError as error:
            why = f"cannot listen on {host}:{port}: {_why(error)}"
            tell(f"{why}: end what listens there, or name another --listen; it is tried again every 5 s")
            await asyncio.sleep(5.0)
    tell(f"hears agents at {host}:{port}")
    await asyncio.Event().wait()


def _why(error: OSError) -> str:
    """A server's own words repeat the address; a name that is not known has no number of the system."""
    if error.errno and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)
    return error.strerror or str(error)
