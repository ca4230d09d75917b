"""From verdicts to reports, and from instructions to what they ask for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec.structs import replace

from nodeguard import __version__
from nodeguard.agent.control import InstructionOutcome
from nodeguard.agent.reporting.delivery_state import DeliveryQueue
from nodeguard.agent.transitions import LogLine
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.finding import Health, Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Reading
from nodeguard.wire.instruction import Instruction
from nodeguard.wire.report import InstructionResult
from nodeguard.wire.report_builder import NodeFacts, build_inventory, build_report

# Carries out an instruction of one kind.
Carry = Callable[[Any], Awaitable[InstructionOutcome]]


def node_facts(node: str, catalogue: Catalogue) -> NodeFacts:
    """What each report of a node says besides its verdict. node: its name."""
    digest = blake2b(msgspec.msgpack.encode(catalogue), digest_size=8).hexdigest()
    views = {check.id: check.topologies for check in catalogue.checks if check.topologies}
    return NodeFacts(node, __version__, digest, views)


# Characters of an answer that a receiver is sent.
_SAID = 512


class Reporter:
    """Puts reports into the mailbox, and sees to the instructions that come out of it.

    carry: of each kind of instruction, by its class; one of another kind is refused. log: takes a line for
    each instruction.
    """

    def __init__(
        self,
        queue: DeliveryQueue,
        facts: NodeFacts,
        carry: Mapping[type[Instruction], Carry],
        log: Callable[[LogLine], None],
    ) -> None:
        self.queue = queue
        self.facts = facts
        self.carry = dict(carry)
        self._log = log

    def offer(self, verdict: Verdict, instant: Instant, latest: Iterable[Reading], *, whole: bool) -> bool:
        """The report of a verdict. Returns whether it tells of a change.

        latest: of each source's readings. whole: whether every source was read; until then it is not told
        that the node is well.
        """
        if not whole and verdict.health == Health.OK:
            return False
        seen = (one for reading in latest for one in reading.observations)
        made_of = replace(self.facts, inventory=build_inventory(seen, verdict.platform))
        return self.queue.offer(build_report(verdict, instant, made_of), instant)

    async def carry_out_all(self) -> bool:
        """Carry out what has come from receivers. Returns whether anything had."""
        came = self.queue.take()
        for one in came:
            answer = await self.carry_out(one)
            self.queue.carried_out(InstructionResult(one.id, answer.done, answer.message[:_SAID]))
        return bool(came)

    async def carry_out(self, one: Instruction) -> InstructionOutcome:
        """Carry out one instruction, wherever it comes from."""
        try:
            answer = await self.carry.get(type(one), _unknown)(one)
        except Exception as error:  # noqa: BLE001 - one that fails must not take the others with it
            said = f"error in the agent itself, please report it: {type(error).__name__}: {error}"
            answer = InstructionOutcome(done=False, message=said)
        asked = msgspec.to_builtins(one)
        self._log({"event": "instruction", **asked, "done": answer.done, "said": answer.message})
        return answer


async def _unknown(_: Instruction) -> InstructionOutcome:
    return InstructionOutcome(done=False, message="this agent does not know how")
