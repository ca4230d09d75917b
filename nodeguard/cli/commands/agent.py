"""nodeguard agent: the same judgement, always on."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial

from msgspec.structs import replace

from nodeguard.agent import control
from nodeguard.agent.agent import Agent
from nodeguard.agent.check_reload import CheckReload, adoption_delay
from nodeguard.agent.fd_watch import watch_descriptors
from nodeguard.agent.instructions import FindingClearer, GpuDetacher
from nodeguard.agent.process import LoopErrorHandler, use_one_malloc_arena
from nodeguard.agent.reporting.delivery_state import DeliveryQueue
from nodeguard.agent.reporting.reporter import Carry, Reporter, node_facts
from nodeguard.agent.reporting.senders import Senders
from nodeguard.agent.service import Service
from nodeguard.agent.state import AgentState
from nodeguard.agent.state_file import StateFile
from nodeguard.agent.watched_node import WatchedNode, watch_live, watch_recording
from nodeguard.bundle.defect import BundleError
from nodeguard.bundle.watched import WatchedBundle
from nodeguard.cli.agent_options import Options, options
from nodeguard.cli.check_catalogue import knowledge
from nodeguard.cli.commands.check import exit_code
from nodeguard.cli.options import hear_instance_type, hold_platform
from nodeguard.cli.usage import OK, UNKNOWN, UsageError
from nodeguard.derive.derive import PlatformHints
from nodeguard.local.json_log import JsonLog
from nodeguard.local.state_lock import acquire_state_lock
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.finding import DataStatus
from nodeguard.model.instant import Instant
from nodeguard.model.signal import Signal
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.sources.infiniband import InfinibandSource
from nodeguard.sources.nvml import NvmlSource
from nodeguard.sources.registry import all_sources
from nodeguard.sources.source import Source
from nodeguard.wire.instruction import ClearFinding, DetachGpus, Instruction
from nodeguard.worker.lane import filesystem_lane


def run(arguments: Sequence[str]) -> int:
    """Run the agent; returns the exit code."""
    use_one_malloc_arena()
    return asyncio.run(_agent(arguments))


async def _agent(arguments: Sequence[str]) -> int:
    told = options(arguments)
    hangup = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hangup.set)
    catalogue, signals = knowledge(told.checks)
    hold_platform(catalogue, told.platform, told.named("platform"))
    hear_instance_type(catalogue, told.instance_type, told.platform, told.named("instance_type"))
    held = acquire_state_lock(told.state) if told.state else None
    if told.state and held is None:
        raise UsageError(f"another agent on this machine remembers in {told.state}: name another --state")
    file = StateFile(told.state, filesystem_lane()) if told.state else None
    with closing(JsonLog(sys.stderr.fileno(), told.node)) as log:
        asyncio.get_running_loop().set_exception_handler(LoopErrorHandler(log, time.monotonic))
        with closing(_subject(told, catalogue, file, log)) as subject:
            return await _watch(told, catalogue, signals, subject, file, log, hangup)


def _subject(told: Options, catalogue: Catalogue, file: StateFile | None, log: JsonLog) -> WatchedNode:
    sources, site = all_sources(catalogue.patterns), PlatformHints(told.platform, told.instance_type)
    if told.bundle is None:
        try:
            return watch_live(told.root, sources, site, file)
        except OSError as error:
            where = f"{error.filename}: {error.strerror}"
            raise UsageError(f"{where}: --root names where the machine's root directory is") from None
    try:
        subject = watch_recording(WatchedBundle(told.bundle, log), told.speed, sources, site, file)
    except BundleError as error:
        raise UsageError(str(error)) from None
    if not subject.sources:
        raise UsageError(f"{told.bundle}: no source is recorded in it: record it anew with nodeguard record")
    return subject


async def _watch(
    told: Options,
    catalogue: Catalogue,
    signals: dict[str, Signal],
    subject: WatchedNode,
    file: StateFile | None,
    log: JsonLog,
    hangup: asyncio.Event,
) -> int:
    machine, memory = subject.machine, subject.state
    judgement = Pipeline(catalogue, signals, subject.site, memory=memory)
    agent = Agent(
        machine, subject.sources, judgement, log, subject.offset, subject.speed, logged=memory.logged
    )
    nvml = next((source for source in subject.sources if isinstance(source, NvmlSource)), None)
    gpus = GpuDetacher(agent, nvml, machine.detach_gpus, memory.detached)
    gpus.begin()
    _spare(subject.sources, judgement)
    carry: dict[type[Instruction], Carry] = {
        DetachGpus: gpus.carry_out,
        ClearFinding: FindingClearer(agent, judgement).carry_out,
    }
    mailbox = DeliveryQueue(memory.delivery, spools=told.aggregator is not None)
    reporter = Reporter(mailbox, node_facts(told.node, catalogue), carry, log)

    def remember(instant: Instant) -> AgentState:
        return replace(judgement.memory(instant, machine.hangs()), release=gpus.detached)

    senders = _senders(told, mailbox, log)
    service = Service(agent, reporter, remember, file, subject.load_error, senders)
    watch_descriptors(machine, agent)

    def adopt(catalogue: Catalogue, signals: dict[str, Signal]) -> None:
        judgement.adopt(catalogue, signals)
        _spare(subject.sources, judgement)
        reporter.facts = node_facts(told.node, catalogue)

    reload = CheckReload(partial(knowledge, told.checks), adopt, adoption_delay(told.node, told.spread), log)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload.ask)
    if hangup.is_set():
        reload.ask()
    asked = await _control(told.socket, service, log) if told.socket else None
    # What is there by now stays to the end: to look through it for garbage again and again is in vain.
    gc.collect()
    gc.freeze()
    host, port = told.listen
    try:
        verdict = await service.attend(host, port, once=told.once)
    except OSError as error:
        # A server's own words repeat the address; a name that is not known has no number of the system.
        if error.errno and not isinstance(error, socket.gaierror):
            why = os.strerror(error.errno)
        else:
            why = error.strerror or str(error)
        raise UsageError(f"cannot listen on {host}:{port}: {why}: name another --listen") from None
    finally:
        if asked is not None:
            asked.close()
    if verdict is None:
        return UNKNOWN
    health = verdict.known_health or DataStatus.UNKNOWN
    log({"event": "end", "health": health.value, "findings": len(verdict.findings)})
    return exit_code(verdict, strict=False) if told.once else OK


async def _control(path: str, service: Service, log: JsonLog) -> asyncio.Server | None:
    try:
        return await control.serve_control(path, service.carry_out)
    except OSError as error:
        remedy = "nodeguard release and clear cannot reach this agent; name a --socket"
        log({"event": "no socket", "why": f"{path}: {error.strerror or error}: {remedy}"})
        return None


def _senders(told: Options, mailbox: DeliveryQueue, log: JsonLog) -> Senders | None:
    if told.aggregator is None:
        return None
    # Brings http.client, for agents that report to somebody alone.
    from nodeguard.cli.receivers import senders  # noqa: PLC0415

    return senders(told.config, told.aggregator, mailbox, log)


def _spare(sources: Sequence[Source], judgement: Pipeline) -> None:
    """Have the ports' counters left alone that nobody looks at."""
    for source in sources:
        if isinstance(source, InfinibandSource):
            source.select_counters(judgement.port_signals)
