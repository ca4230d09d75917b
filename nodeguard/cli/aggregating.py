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
from nodeguard.aggregator.api.pages import Asked
from nodeguard.aggregator.api.server import serving
from nodeguard.aggregator.authority.certificates import HostError
from nodeguard.aggregator.authority.directory import Directory
from nodeguard.aggregator.authority.given import Given
from nodeguard.aggregator.authority.keeper import Keeper
from nodeguard.aggregator.authority.showing import ShowingError, context
from nodeguard.aggregator.authority.trust import Trust, UnavailableError
from nodeguard.aggregator.hearing import Hearing
from nodeguard.aggregator.history.file import placed
from nodeguard.aggregator.history.history import History
from nodeguard.aggregator.history.parts import recall
from nodeguard.aggregator.history.writer import Bounds, Writer
from nodeguard.aggregator.identity.caller import Identity
from nodeguard.aggregator.identity.certificate import Certificates
from nodeguard.aggregator.identity.keyring import Keyring
from nodeguard.aggregator.identity.loopback import WARNING, Anybody, NotLoopbackError
from nodeguard.aggregator.identity.review import Reviews
from nodeguard.aggregator.identity.token import Expected
from nodeguard.aggregator.identity.tokens import Tokens
from nodeguard.aggregator.ingest.limits import Limits
from nodeguard.aggregator.ingest.server import Ingest
from nodeguard.aggregator.metrics import as_metrics
from nodeguard.aggregator.outbox import Outbox
from nodeguard.aggregator.pages import serve
from nodeguard.aggregator.policy.file import read
from nodeguard.aggregator.reload import PolicyFile
from nodeguard.aggregator.service import Service, moment
from nodeguard.aggregator.world.alone import Alone
from nodeguard.aggregator.world.cluster import Cluster
from nodeguard.aggregator.world.kept import KeptError, in_directory
from nodeguard.aggregator.world.world import World
from nodeguard.catalog.located import CatalogueError
from nodeguard.cli.aggregator_options import AGENT, Options
from nodeguard.fleet.planner import Planner
from nodeguard.fleet_api import service as told_service
from nodeguard.kube.authority import ClusterStore
from nodeguard.kube.client import Api, ApiError
from nodeguard.local.open_files import capacity, raise_limit
from nodeguard.local.state_lock import hold
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.incident import Incident, State
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


class Aggregating:
    """What runs. policy: its file, None for none."""

    def __init__(self, service: Service, policy: PolicyFile | None, work: list[Work]) -> None:
        self.service = service
        self.policy = policy
        self._work = work

    @classmethod
    async def begin(
        cls, told: Options, catalogue: Catalogue, tell: Tell, happened: Happened, stack: AsyncExitStack
    ) -> Self:
        """Put it together; what it opens is closed with the stack. Raises StartError.

        tell: takes sentences for the log. happened: is told of incidents where no Kubernetes is.
        """
        checks = {check.id: check.health for check in catalogue.checks}
        file = PolicyFile(told.policy, checks, tell) if told.policy is not None else None
        granted = State.ADVISED if told.standalone else State.MARKED
        planner = Planner(_policy(file, checks, tell), checks, granted)
        outbox, woken, work = Outbox(), asyncio.Event(), list[Work]()
        if told.standalone:
            world, identity, trust = await _alone(told, planner, outbox, woken, tell, happened, stack)
        else:
            world, identity, trust = await _in_cluster(told, planner, outbox, woken, tell, work)
        stack.push_async_callback(world.close)
        if file is not None:
            file.refused = world.policy_refused
        if told.history:
            recalling = asyncio.create_task(recall(told.history, planner.parts.known, tell))
            stack.callback(recalling.cancel)
        history = _history(told, planner, world, tell, stack)
        hearing = Hearing(planner, outbox, moment, woken.set, world.met, history)

        def reload(now: Instant) -> None:
            if file is not None:
                file(planner, now)

        service = Service(planner, world, hearing, reload, woken, tell, history)
        room = capacity(raise_limit(), Limits().connections)
        service.capacity = room
        tell(f"up to {room.connections} agents can connect: the limit on open files is {room.open_files}")
        shown = trust.context if trust is not None else lambda: None
        ingest = Ingest(identity, hearing, shown, tell, Limits(connections=room.connections))
        ingest.exchange.on_refused = hearing.refused
        if trust is not None:
            work.append(trust.run())
        await _listen(told, service, ingest, file, stack)
        if told.socket:
            await _ask_at(told.socket, service, file, tell, stack)
        work += (service.run(), _hear(told, ingest, trust, tell))
        stack.push_async_callback(ingest.close)
        return cls(service, file, work)

    def work(self) -> Iterable[Work]:
        """What is to be run, all of it until the end."""
        return self._work

    def reread(self) -> None:
        """Read the policy again, changed or not."""
        if self.policy is not None:
            self.policy.asked = True


def _policy(file: PolicyFile | None, checks: dict[str, Any], tell: Tell) -> Policy:
    if file is None:
        tell("no --policy: everything is observed, and nothing is marked")
        return Policy()
    try:
        policy, doubts = read(file.file, checks, time.time())
    except CatalogueError as error:
        raise StartError(str(error)) from None
    for doubt in doubts:
        tell(str(doubt))
    return policy


def _history(
    told: Options, planner: Planner, world: World, tell: Tell, stack: AsyncExitStack
) -> History | None:
    if not told.history:
        return None
    writer = Writer(placed(told.history), Bounds(told.history_days, told.history_mib))
    stack.push_async_callback(asyncio.to_thread, writer.close)
    return History(planner, world.decisions, writer, tell, moment().mono)


async def _alone(
    told: Options,
    planner: Planner,
    outbox: Outbox,
    woken: asyncio.Event,
    tell: Tell,
    happened: Happened,
    stack: AsyncExitStack,
) -> tuple[World, Identity, Trust | None]:
    if told.state:
        held = hold(told.state, "aggregator")
        if held is None:
            raise StartError(
                f"another aggregator on this machine remembers in {told.state}: name another --state"
            )
        stack.callback(held.close)
        above = os.path.dirname(told.state)
        if not os.path.isdir(above):
            raise StartError(f"--state {told.state}: there is no directory {above}: make it, or name another")
    try:
        kept = in_directory(told.state) if told.state else None
        world = Alone(kept, planner, outbox, news=woken.set, happened=happened, tell=tell)
        if told.insecure:
            anybody = Anybody(told.listen[0])
            tell(WARNING)
            return world, anybody, None
        shower: Given | Keeper = (
            Given(told.certificate, told.key, told.client_ca)
            if told.certificate
            else Keeper(Directory(told.state), told.hosts, tell, told.client_ca)
        )
        # What is wrong at the start is put right by whoever starts it.
        context(await shower.showing(time.time()))
    except ShowingError as error:
        files = filter(None, (told.certificate, told.key, told.client_ca))
        raise StartError(f"{', '.join(files)}: {error}") from None
    except (KeptError, NotLoopbackError, HostError, UnavailableError) as error:
        raise StartError(str(error)) from None
    return world, Certificates(), Trust(shower, tell, time.time)


async def _in_cluster(
    told: Options, planner: Planner, outbox: Outbox, woken: asyncio.Event, tell: Tell, work: list[Work]
) -> tuple[World, Identity, Trust]:
    try:
        api = await Api.connect(told.kubeconfig)
    except ApiError as error:
        raise StartError(f"{error}; without Kubernetes, say --standalone") from None
    world = Cluster(api, told.namespace, told.pod, planner, outbox, news=woken.set, tell=tell)
    world.begin()
    expected = Expected(frozenset({f"{told.namespace}:{AGENT}"}))
    reviews = Reviews(api, expected, lambda name: planner.roster.uid(name) or None, time.time)
    keyring = Keyring(reviews.keys, tell)
    work.append(keyring.run(time.monotonic))
    try:
        keeper = Keeper(ClusterStore(api, told.namespace), told.hosts, tell)
    except HostError as error:
        raise StartError(str(error)) from None
    trust = Trust(keeper, tell, time.time)
    return world, Tokens(expected, keyring, reviews, time.monotonic), trust


async def _listen(
    told: Options, service: Service, ingest: Ingest, file: PolicyFile | None, stack: AsyncExitStack
) -> None:
    """Serve the pages for machines. Raises StartError."""

    def alive() -> tuple[int, str]:
        stuck = moment().mono - service.turned
        return (200, "alive\n") if stuck < _STUCK else (503, f"the loop has not turned for {stuck:.0f} s\n")

    def ready() -> tuple[int, str]:
        unknown = service.world.unknown()
        return (503, f"not known yet: {unknown}\n") if unknown else (200, "ready\n")

    pages = {
        "/metrics": lambda: (200, as_metrics(service, ingest, file, moment())),
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
    path: str, service: Service, file: PolicyFile | None, tell: Tell, stack: AsyncExitStack
) -> None:
    """Let people ask at a socket; the aggregator does without where that cannot be."""

    def known() -> told_service.Service:
        return told_service.Service(
            leader=service.world.leader,
            leads=service.leads,
            waits=service.waits_for(moment()),
            started=service.began,
            plan_age=moment().mono - service.planned if service.plans else None,
            policy_file=str(file.file) if file is not None else "",
            policy_error=file.error if file is not None else "",
            version=__version__,
            decisions=service.world.decisions(),
            refused=service.refusals.recent(moment().mono),
            shortage=service.shortage,
        )

    try:
        await stack.enter_async_context(
            serving(path, Asked(service.planner, known, moment, service.world.people))
        )
    except OSError as error:
        remedy = "nodeguard status and others cannot reach this aggregator; name a --socket"
        tell(f"{path}: {error.strerror or error}: {remedy}")


async def _hear(told: Options, ingest: Ingest, trust: Trust | None, tell: Tell) -> None:
    """Hear agents, once there is a certificate to show."""
    if trust is not None:
        await trust.begin()
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
