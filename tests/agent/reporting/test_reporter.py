from __future__ import annotations

from msgspec.structs import replace

from nodeguard.agent.control import InstructionOutcome
from nodeguard.agent.reporting.delivery_state import DeliveryQueue
from nodeguard.agent.reporting.reporter import Reporter, node_facts
from nodeguard.agent.reporting.spool import restored
from nodeguard.agent.transitions import LogLine
from nodeguard.cli.check_catalogue import knowledge
from nodeguard.model.finding import Health
from nodeguard.model.observation import Component, Observation, Reading
from nodeguard.wire.instruction import ClearFinding, Instruction, RunTest
from nodeguard.wire.report import InstructionResult, Report
from tests.wire.scene import NOW, finding, verdict

CATALOGUE, _ = knowledge()
SEEN = Reading("nvml", 1.0, (Observation("nvml", "gpu/0000:1b:00", component=Component("GPU-1", "H100")),))


def made(*carried: type[Instruction]) -> tuple[Reporter, list[LogLine]]:
    lines: list[LogLine] = []

    async def done(one: Instruction) -> InstructionOutcome:
        return InstructionOutcome(done=True, message=f"did {one.id}")

    return Reporter(
        DeliveryQueue(), node_facts("node-1", CATALOGUE), dict.fromkeys(carried, done), lines.append
    ), lines


def waiting(reporter: Reporter) -> list[Report]:
    return [restored(entry.data)[0] for entry in reporter.queue.state.spool.entries]


def test_a_report_says_who_by_what_and_of_what() -> None:
    reporter, _ = made()
    assert reporter.offer(verdict(finding()), NOW, [SEEN], whole=True)
    assert not reporter.offer(verdict(finding()), NOW, [SEEN], whole=True)
    [report] = waiting(reporter)
    assert (report.node, len(report.catalogue)) == ("node-1", 16)
    assert report.inventory.components["gpu/0000:1b:00"].id == "GPU-1"


def test_before_every_source_was_read_only_bad_news_are_told() -> None:
    reporter, _ = made()
    assert not reporter.offer(replace(verdict(), health=Health.OK), NOW, [], whole=False)
    assert reporter.offer(verdict(finding()), NOW, [], whole=False)


def test_another_catalogue_has_another_digest() -> None:
    other = node_facts("node-1", knowledge([])[0])
    assert other.catalogue == node_facts("node-1", CATALOGUE).catalogue
    assert node_facts("node-1", type(CATALOGUE)()).catalogue != other.catalogue


async def test_an_instruction_is_carried_out_once_and_one_that_is_not_known_refused() -> None:
    reporter, lines = made(ClearFinding)
    reporter.queue.receive([ClearFinding("1", "a", "node"), RunTest("2", "t")])
    assert await reporter.carry_out_all()
    assert not await reporter.carry_out_all()
    assert [(line["id"], line["done"], line["said"]) for line in lines] == [
        ("1", True, "did 1"),
        ("2", False, "this agent does not know how"),
    ]
    assert reporter.queue.state.inbox.done == ("1", "2")
    assert reporter.queue.state.inbox.results == (
        InstructionResult("1", done=True, message="did 1"),
        InstructionResult("2", done=False, message="this agent does not know how"),
    )
    assert reporter.queue.written == ()


async def test_an_instruction_that_fails_is_answered_and_takes_no_other_with_it() -> None:
    reporter, lines = made(ClearFinding)

    async def fails(_: Instruction) -> InstructionOutcome:
        raise KeyError("gpu/x")

    reporter.carry = {**reporter.carry, RunTest: fails}
    reporter.queue.receive([RunTest("1", "t"), ClearFinding("2", "a", "node")])
    assert await reporter.carry_out_all()
    assert [(line["id"], line["done"]) for line in lines] == [("1", False), ("2", True)]
    assert lines[0]["said"] == "error in the agent itself, please report it: KeyError: 'gpu/x'"
    assert reporter.queue.state.inbox.done == ("1", "2")
