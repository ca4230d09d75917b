"""The composition root of the agent: it builds the parts from the options, and runs them."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial

from nodeguard import __version__
from nodeguard.agent import control
from nodeguard.agent.agent import Agent
from nodeguard.agent.check_reload import CheckReload, LoadedChecks, adoption_delay
from nodeguard.agent.injected_fault import require_option, require_policy
from nodeguard.agent.injector import Injector
from nodeguard.agent.instructions import FindingClearer, GpuDetacher
from nodeguard.agent.options import AgentOptions, ReportingOptions
from nodeguard.agent.process import log_loop_error
from nodeguard.agent.reporting.credentials import CertificateFiles, TlsFileError, TokenFile, tls_context
from nodeguard.agent.reporting.delivery_queue import DeliveryQueue
from nodeguard.agent.reporting.endpoint import Address, parse_address, resolve
from nodeguard.agent.reporting.endpoint_pool import EndpointPool, NamedEndpoint
from nodeguard.agent.reporting.http1 import HttpsTransport
from nodeguard.agent.reporting.reporter import Executor, Reporter, node_facts
from nodeguard.agent.service import Service
from nodeguard.agent.state import AgentState, capture_state
from nodeguard.agent.state_file import StateFile
from nodeguard.agent.watched_node import WatchedNode, watch_descriptors, watch_live, watch_recording
from nodeguard.bundle.watched import WatchedBundle
from nodeguard.derive.derive import PlatformHints
from nodeguard.local.logs import start_logging
from nodeguard.local.unix_socket import acquire_state_lock, listen_again_when_removed
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.failure import UserError
from nodeguard.model.finding import DataStatus, Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.signal import Signal
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.sources.infiniband import InfinibandSource
from nodeguard.sources.nvml import NvmlSource
from nodeguard.sources.registry import all_sources
from nodeguard.sources.source import Source
from nodeguard.wire.instruction import ClearFinding, DetachGpus, Instruction
from nodeguard.worker.lane import filesystem_lane

logger = logging.getLogger(__name__)


async def run_agent(
    options: AgentOptions, load_checks: Callable[[], LoadedChecks], validate: Callable[[Catalogue], None]
) -> Verdict | None:
    """Run an agent until a signal ends it. Return its last verdict, None if there is none.

    load_checks: returns the checks, now and on SIGHUP; raises UserError. validate: raises an error if the
    options do not fit the first checks. Raises UserError if the agent cannot start.
    """
    hangup = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hangup.set)
    checks = load_checks()
    validate(checks[0])
    lock = acquire_state_lock(options.state) if options.state else None
    if options.state and lock is None:
        raise UserError(f"another agent on this machine uses {options.state}: name another --state")
    file = StateFile(options.state, filesystem_lane()) if options.state else None
    with closing(start_logging(options.log_level, options.log_format, {"node": options.node})):
        asyncio.get_running_loop().set_exception_handler(log_loop_error)
        with closing(_watched_node(options, checks[0], file)) as node:
            return await _run(options, checks, load_checks, node, file, hangup)


def _watched_node(options: AgentOptions, catalogue: Catalogue, file: StateFile | None) -> WatchedNode:
    sources, site = all_sources(catalogue.patterns), PlatformHints(options.platform, options.instance_type)
    if options.bundle is None:
        return watch_live(options.root, sources, site, file)
    node = watch_recording(WatchedBundle(options.bundle), options.speed, sources, site, file)
    if not node.sources:
        node.close()
        raise UserError(f"{options.bundle}: it records no source: record it again with nodeguard record")
    return node


async def _run(
    options: AgentOptions,
    checks: LoadedChecks,
    load_checks: Callable[[], LoadedChecks],
    node: WatchedNode,
    file: StateFile | None,
    hangup: asyncio.Event,
) -> Verdict | None:
    catalogue, signals = checks
    machine, state = node.machine, node.state
    pipeline = Pipeline(catalogue, signals, node.site, state=state.pipeline)
    agent = Agent(machine, node.sources, pipeline, node.offset, node.speed, logged=state.logged)
    nvml = next((source for source in node.sources if isinstance(source, NvmlSource)), None)
    gpus = GpuDetacher(agent, nvml, machine.detach_gpus, state.detached)
    gpu_names: Callable[[], Mapping[str, str]] = nvml.targets_by_name if nvml else dict
    gpus.apply()
    _skip_unused_counters(node.sources, pipeline)
    executors: dict[type[Instruction], Executor] = {
        DetachGpus: gpus.carry_out,
        ClearFinding: FindingClearer(agent, pipeline, gpu_names).carry_out,
    }
    queue = DeliveryQueue(state.delivery, spools=options.aggregator is not None, speed=node.speed)
    reporter = Reporter(queue, node_facts(options.node, catalogue), executors, state.receipts)

    def capture(instant: Instant) -> AgentState:
        return capture_state(pipeline.state, instant, machine.hangs(), gpus.detached)

    endpoints = None
    if options.aggregator is not None:
        endpoints = endpoint_pool(options.config, options.aggregator, queue)

    def require_permission(check: str, now: Instant) -> None:
        if endpoints is None:
            require_option(allowed=options.allow_injection)
        else:
            require_policy(check, endpoints.injection_replies(), now.mono)

    injector = Injector(agent, pipeline, require_permission, gpu_names)
    service = Service(agent, reporter, capture, injector.active, file, node.load_error, endpoints)
    watch_descriptors(machine, agent)

    def adopt(catalogue: Catalogue, signals: dict[str, Signal]) -> None:
        pipeline.adopt(catalogue, signals)
        _skip_unused_counters(node.sources, pipeline)
        reporter.facts = node_facts(options.node, catalogue)

    reload = CheckReload(load_checks, adopt, adoption_delay(options.node, options.spread))
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload.request)
    if hangup.is_set():
        reload.request()
    async with _serve_control(options, service, injector):
        _log_start(options, catalogue, node)
        # The objects of the start live until the end: searching them for garbage again and again finds
        # nothing.
        gc.freeze()
        gc.enable()
        verdict = await _serve(service, options)
    if verdict is not None:
        health = verdict.known_health or DataStatus.UNKNOWN
        logger.info("agent stopped", extra={"health": health.value, "findings": len(verdict.findings)})
    return verdict


def _log_start(options: AgentOptions, catalogue: Catalogue, node: WatchedNode) -> None:
    host, port = options.listen
    fields = {
        "version": __version__,
        "config": options.config,
        "bundle": options.bundle,
        "checks": len(catalogue.checks),
        "sources": ",".join(source.name for source in node.sources),
        "aggregators": ",".join(options.aggregator.addresses) if options.aggregator else "",
        "listen": f"{host}:{port}",
        "socket": options.socket,
        "state": options.state,
    }
    logger.info("agent started", extra={name: value for name, value in fields.items() if value})


async def _serve(service: Service, options: AgentOptions) -> Verdict | None:
    host, port = options.listen
    try:
        return await service.run(host, port, once=options.once)
    except OSError as error:
        # The text of asyncio repeats the address; the error of an unknown host has no errno of the system.
        if error.errno and not isinstance(error, socket.gaierror):
            reason = os.strerror(error.errno)
        else:
            reason = error.strerror or str(error)
        raise UserError(f"cannot listen on {host}:{port}: {reason}: name another --listen") from None


@asynccontextmanager
async def _serve_control(options: AgentOptions, service: Service, injector: Injector) -> AsyncIterator[None]:
    """Serve the control socket, if it has a path, until the context ends. The agent also runs without it."""
    server: asyncio.Server | None = None

    async def listen() -> None:
        nonlocal server
        removed = server
        server = await control.serve_control(
            options.socket,
            service.carry_out,
            injector.carry_out,
            service.status,
            options.socket_group,
            service.values,
        )
        if removed is not None:
            removed.close()

    watch: asyncio.Task[None] | None = None
    if options.socket:
        is_listening = True
        try:
            await listen()
        except OSError as error:
            is_listening = False
            lost = "until then nodeguard gpus, clear, inject and status cannot reach it"
            remedy = f"the agent tries again, {lost}; name another --socket if this lasts"
            fields = {"socket": options.socket, "error": f"{error.strerror or error}: {remedy}"}
            logger.warning("cannot listen on the socket", extra=fields)
        watch = asyncio.create_task(
            listen_again_when_removed(options.socket, listen, is_listening=is_listening)
        )
    try:
        yield
    finally:
        if watch is not None:
            watch.cancel()
        if server is not None:
            server.close()


def endpoint_pool(config: str, aggregator: ReportingOptions, queue: DeliveryQueue) -> EndpointPool:
    """Return the senders to every aggregator. config: the file that names them.

    Raises UserError if the CA file cannot be used.
    """
    ca_file = aggregator.ca_file or None
    certificate = None
    if aggregator.certificate_file:
        certificate = CertificateFiles(aggregator.certificate_file, aggregator.key_file)
    try:
        if ca_file is not None:
            tls_context(ca_file)
    except TlsFileError as error:
        raise UserError(f"{config}: aggregator.ca_file: {error}") from None
    addresses = [parse_address(address) for address in aggregator.addresses]

    def transport(address: Address) -> HttpsTransport:
        token = TokenFile(aggregator.token_file) if aggregator.token_file else None
        return HttpsTransport(address, token, ca_file, certificate)

    def named(address: Address) -> NamedEndpoint:
        return NamedEndpoint(
            address.name, partial(resolve, address), lambda ips: transport(address.of_replica(ips))
        )

    return EndpointPool(
        [transport(address) for address in addresses if address.is_fixed],
        queue,
        random.random,
        [named(address) for address in addresses if not address.is_fixed],
    )


def _skip_unused_counters(sources: Sequence[Source], pipeline: Pipeline) -> None:
    """Have the InfiniBand source skip the port counters that no check uses."""
    for source in sources:
        if isinstance(source, InfinibandSource):
            source.select_counters(pipeline.port_signals)
