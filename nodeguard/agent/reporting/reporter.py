"""The reporter: turns verdicts into reports in the delivery queue, and carries out instructions."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec.structs import replace

from nodeguard import __version__
from nodeguard.agent.control import InstructionOutcome
from nodeguard.agent.reporting.delivery_queue import DeliveryQueue
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.finding import Health, Verdict
from nodeguard.model.injection import Injection
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Observation, Reading
from nodeguard.wire.instruction import Instruction
from nodeguard.wire.report import InstructionResult, Inventory
from nodeguard.wire.report_builder import NodeFacts, build_inventory, build_report, is_in_inventory
from nodeguard.wire.versions import VersionReceipts, version_domains

logger = logging.getLogger(__name__)

# Carries out an instruction of one kind.
Executor = Callable[[Any], Awaitable[InstructionOutcome]]

# Characters of an outcome's message in a report.
_MAX_MESSAGE = 512


def catalogue_digest(catalogue: Catalogue) -> str:
    """Return the digest of all checks, tables and platforms: equal catalogues have the same."""
    return blake2b(msgspec.msgpack.encode(catalogue), digest_size=8).hexdigest()


def node_facts(node: str, catalogue: Catalogue) -> NodeFacts:
    """Return the facts that each report of a node contains in addition to the verdict. node: its name."""
    topologies = {check.id: check.topologies for check in catalogue.checks if check.topologies}
    digest, facts = catalogue_digest(catalogue), catalogue.fact_checks
    return NodeFacts(node, __version__, digest, topologies, fact_checks=facts)


class Reporter:
    """Queues a report of each verdict, and carries out instructions.

    executors: by the class of instruction; an instruction of another class is refused. receipts: of the
    versions, before this start; they survive a reboot, so their times are those of the wall clock.
    """

    def __init__(
        self,
        queue: DeliveryQueue,
        facts: NodeFacts,
        executors: Mapping[type[Instruction], Executor],
        receipts: VersionReceipts | None = None,
    ) -> None:
        self.queue = queue
        self.facts = facts
        self.executors = dict(executors)
        self.receipts = receipts or VersionReceipts()
        # The inventory stays the same until a reading that names components or versions is another.
        self._inventory_of: tuple[tuple[Observation, ...], str] = ((), "")
        self._inventory = Inventory()

    def offer(
        self,
        verdict: Verdict,
        instant: Instant,
        latest: Iterable[Reading],
        *,
        complete: bool,
        injections: Iterable[Injection] = (),
    ) -> bool:
        """Queue the report of a verdict. Return whether it is a change.

        latest: of each source's readings. complete: whether every source was read; until then the node is not
        reported as ok. injections: the faults that are injected at the instant.
        """
        if not complete and verdict.health == Health.OK:
            return False
        observations = (observation for reading in latest for observation in reading.observations)
        named = tuple(filter(is_in_inventory, observations))
        if (named, verdict.platform) != self._inventory_of:
            self._inventory_of = named, verdict.platform
            self._inventory = build_inventory(named, verdict.platform)
        versions = version_domains(self._inventory, self.facts.agent, self.facts.catalogue)
        self.receipts = self.receipts.update(versions, instant.wall)
        facts = replace(self.facts, inventory=self._inventory, receipts=self.receipts)
        return self.queue.offer(build_report(verdict, instant, facts, injections=injections), instant)

    async def carry_out_all(self) -> bool:
        """Carry out the instructions in the queue. Return whether there were any."""
        instructions = self.queue.take_instructions()
        for instruction in instructions:
            outcome = await self.carry_out(instruction)
            self.queue.record_result(
                InstructionResult(instruction.id, outcome.done, outcome.message[:_MAX_MESSAGE])
            )
        return bool(instructions)

    async def carry_out(self, instruction: Instruction) -> InstructionOutcome:
        """Carry out one instruction, from an aggregator or from the local socket."""
        try:
            outcome = await self.executors.get(type(instruction), _refuse)(instruction)
        except Exception as error:  # noqa: BLE001 - a failure must not affect other instructions
            reason = f"{type(error).__name__}: {error}"
            outcome = InstructionOutcome(
                done=False, message=f"error in the agent itself, please report it: {reason}"
            )
        fields = {**msgspec.to_builtins(instruction), "outcome": outcome.message}
        logger.info("instruction carried out" if outcome.done else "instruction refused", extra=fields)
        return outcome


async def _refuse(_: Instruction) -> InstructionOutcome:
    return InstructionOutcome(done=False, message="this agent does not support the instruction")
