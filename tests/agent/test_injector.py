"""Injected faults of a running agent: reported, listed and ended, apart from the verdict."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from fixtures.bundles import bundle_path
from nodeguard.agent.agent import Agent
from nodeguard.agent.control import EndInjections, InjectFault
from nodeguard.agent.injected_fault import InjectionError
from nodeguard.agent.injector import Injector, RequirePermission
from nodeguard.agent.watched_node import LiveReplayMachine
from nodeguard.bundle.watched import WatchedBundle
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.derive import PlatformHints
from nodeguard.model.finding import Health, Verdict
from nodeguard.model.injection import MAX_INJECTIONS, Injection
from nodeguard.model.instant import Instant
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.sources.registry import all_sources
from tests.waiting import until_async

GPU = "gpu/0000:1b:00"
LOST = InjectFault("gpu-lost", GPU, 600.0)


class Node:
    """An agent on a recorded node without faults. seen: the injected faults with each verdict."""

    def __init__(self, require_permission: RequirePermission) -> None:
        catalogue, signals = load_catalogue()
        self.bundle = bundle = WatchedBundle(str(bundle_path("healthy-dgx-h100")))
        manifest = bundle.recording.manifest
        sources = [
            source
            for source in all_sources(catalogue.patterns)
            if bundle.is_recorded(source.name, source.paths)
        ]
        pipeline = Pipeline(catalogue, signals, PlatformHints(manifest.platform, manifest.instance_type))
        self.agent = Agent(LiveReplayMachine(bundle), sources, pipeline, 0.0)
        self.injector = Injector(self.agent, pipeline, require_permission, lambda: {"3": GPU})
        self.seen: list[tuple[Injection, ...]] = []

    def on_verdict(self, verdict: Verdict, instant: Instant, changed: bool) -> None:
        assert verdict.health == Health.OK
        assert verdict.findings == ()
        self.seen.append(self.injector.active(instant))

    async def ask(self, request: InjectFault | EndInjections) -> tuple[bool, str]:
        outcome = await self.injector.carry_out(request, 0)
        return outcome.done, outcome.message


@asynccontextmanager
async def watching(require_permission: RequirePermission = lambda *_: None) -> AsyncIterator[Node]:
    node = Node(require_permission)
    running = asyncio.ensure_future(node.agent.run(node.on_verdict))
    try:
        await until_async(lambda: node.agent.verdict is not None and not any(node.agent.unread_sources()))
        yield node
    finally:
        node.agent.stop()
        await running
        node.bundle.close()


async def test_an_injected_fault_is_reported_at_once_until_it_is_cleared() -> None:
    async with watching() as node:
        done, message = await node.ask(LOST)
        assert done
        assert message.startswith("injected gpu-lost on GPU 0000:1b:00 for 10 min, until 2")
        [injection] = node.seen[-1]
        finding = injection.finding
        assert (finding.check, finding.target, finding.health) == ("gpu-lost", GPU, Health.FATAL)
        assert finding.message == "GPU 0000:1b:00 is lost: the driver cannot reach it over PCIe"
        assert finding.component.startswith("GPU-")
        [evidence] = finding.evidence
        assert evidence.source == "inject"
        assert evidence.text.startswith("injected by uid 0 with nodeguard inject, until 2")
        assert (await node.ask(EndInjections("1")))[0]
        assert node.seen[-1] == ()
        assert not node.agent.findings_raised


async def test_an_injected_fault_ends_by_itself() -> None:
    async with watching() as node:
        await node.ask(replace(LOST, seconds=0.2))
        assert any(node.seen)
        await until_async(lambda: node.seen[-1] == ())
        assert await node.ask(EndInjections()) == (True, "no fault is injected")


async def test_a_gpu_is_named_by_its_index_and_the_only_target_need_not_be_named() -> None:
    async with watching() as node:
        assert (await node.ask(InjectFault("gpu-lost", "3")))[0]
        assert node.agent.verdict is not None
        check = next(group.checks[0] for group in node.agent.verdict.passing if group.targets == ("node",))
        done, message = await node.ask(InjectFault(check, dry_run=True))
        assert done
        assert message.startswith(f"would inject {check} on node for 10 min: ")
        assert len(node.seen[-1]) == 1


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (InjectFault("no-such-check"), "check 'no-such-check' does not exist: see nodeguard checks"),
        (InjectFault("\x1b[31m" + "x" * 999), r"check '\x1b[31mxxx"),
        (InjectFault("gpu-lost"), "gpu-lost has several targets: set --target to one of gpu/0000:1b:00, "),
        (
            InjectFault("efa-dead"),
            "efa-dead passes on no target of this node now, ",
        ),
        (InjectFault("gpu-lost", "gpu/0000:ff:00"), "gpu-lost does not pass on 'gpu/0000:ff:00' now"),
        (InjectFault("gpu-lost", GPU, 0.0), "the duration must be more than 0 s and at most 1 d: set --for"),
        (InjectFault("gpu-lost", GPU, -5.0), "the duration must be more than 0 s and at most 1 d: set --for"),
        (InjectFault("gpu-lost", GPU, 86_401.0), "the duration must be more than 0 s and at most 1 d"),
        (EndInjections("x" * 999), f"no injected fault has the id '{'x' * 80}'; the ids are: none"),
        (EndInjections("7"), "no injected fault has the id '7'; the ids are: none"),
    ],
)
async def test_an_invalid_request_is_refused_with_its_remedy(
    request_: InjectFault | EndInjections, message: str
) -> None:
    async with watching() as node:
        done, answer = await node.ask(request_)
        assert not done
        assert answer.startswith(message)
        assert ("choose another check, such as " in answer) == ("on no target" in answer)
        assert answer.isprintable()
        assert len(answer) < 1000
        assert not any(node.seen)


async def test_no_fault_is_injected_without_permission() -> None:
    def refuse(check: str, _: Instant) -> None:
        raise InjectionError(f"the policy allows no injected fault of {check}: ask its owner")

    async with watching(refuse) as node:
        answer = "the policy allows no injected fault of gpu-lost: ask its owner"
        assert await node.ask(LOST) == (False, answer)


async def test_a_fault_is_injected_once_and_their_number_is_limited() -> None:
    async with watching() as node:
        assert node.agent.verdict is not None
        await node.ask(LOST)
        done, message = await node.ask(LOST)
        assert not done
        assert message.startswith("gpu-lost is injected on gpu/0000:1b:00 already, until 2")
        checks = [
            check
            for group in node.agent.verdict.passing
            if GPU in group.targets
            for check in group.checks
            if check != "gpu-lost"
        ]
        for check in checks[: MAX_INJECTIONS - 1]:
            assert (await node.ask(InjectFault(check, GPU)))[0]
        done, message = await node.ask(InjectFault(checks[MAX_INJECTIONS], GPU))
        assert not done
        assert message.startswith(f"{MAX_INJECTIONS} faults are injected, which is the limit")
        done, message = await node.ask(EndInjections())
        assert not done
        assert message.startswith("several faults are injected: name one of 1, 2, ")
        assert (await node.ask(EndInjections(all=True)))[0]
        assert node.seen[-1] == ()


async def test_nothing_is_injected_before_every_source_was_read() -> None:
    node = Node(lambda *_: None)
    done, message = await node.ask(LOST)
    assert not done
    assert message == "the agent has not read every source yet: try again in a minute"
