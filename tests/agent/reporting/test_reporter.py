from __future__ import annotations

from msgspec.structs import replace

from nodeguard.agent.control import Answer
from nodeguard.agent.reporting.kept import restored
from nodeguard.agent.reporting.mailbox import Mailbox
from nodeguard.agent.reporting.reporter import Reporter, facts
from nodeguard.agent.transitions import Line
from nodeguard.cli.knowledge import knowledge
from nodeguard.model.finding import Health
from nodeguard.model.observation import Observation, Part, Reading
from nodeguard.wire.instruction import ClearCheck, Instruction, RunTest
from nodeguard.wire.report import Answered, Report
from tests.wire.scene import NOW, finding, verdict

CATALOGUE, _ = knowledge()
SEEN = Reading("nvml", 1.0, (Observation("nvml", "gpu/0000:1b:00", part=Part("GPU-1", "H100")),))


def made(*carried: type[Instruction]) -> tuple[Reporter, list[Line]]:
    lines: list[Line] = []

    async def done(one: Instruction) -> Answer:
        return Answer(done=True, said=f"did {one.id}")

    return Reporter(Mailbox(), facts("node-1", CATALOGUE), dict.fromkeys(carried, done), lines.append), lines


def waiting(reporter: Reporter) -> list[Report]:
    return [restored(entry.data)[0] for entry in reporter.mailbox.post.spool.entries]


def test_a_report_says_who_by_what_and_of_what() -> None:
    reporter, _ = made()
    assert reporter.offer(verdict(finding()), NOW, [SEEN], whole=True)
    assert not reporter.offer(verdict(finding()), NOW, [SEEN], whole=True)
    [report] = waiting(reporter)
    assert (report.node, len(report.catalogue)) == ("node-1", 16)
    assert report.inventory.parts["gpu/0000:1b:00"].id == "GPU-1"


def test_before_every_source_was_read_only_bad_news_are_told() -> None:
    reporter, _ = made()
    assert not reporter.offer(replace(verdict(), health=Health.OK), NOW, [], whole=False)
    assert reporter.offer(verdict(finding()), NOW, [], whole=False)


def test_another_catalogue_has_another_digest() -> None:
    other = facts("node-1", knowledge([])[0])
    assert other.catalogue == facts("node-1", CATALOGUE).catalogue
    assert facts("node-1", type(CATALOGUE)()).catalogue != other.catalogue


async def test_an_instruction_is_carried_out_once_and_one_that_is_not_known_refused() -> None:
    reporter, lines = made(ClearCheck)
    reporter.mailbox.receive([ClearCheck("1", "a", "node"), RunTest("2", "t")])
    assert await reporter.carry_out_all()
    assert not await reporter.carry_out_all()
    assert [(line["id"], line["done"], line["said"]) for line in lines] == [
        ("1", True, "did 1"),
        ("2", False, "this agent does not know how"),
    ]
    assert reporter.mailbox.post.inbox.done == ("1", "2")
    assert reporter.mailbox.post.inbox.answers == (
        Answered("1", done=True, said="did 1"),
        Answered("2", done=False, said="this agent does not know how"),
    )
    assert reporter.mailbox.written == ()


async def test_an_instruction_that_fails_is_answered_and_takes_no_other_with_it() -> None:
    reporter, lines = made(ClearCheck)

    async def fails(_: Instruction) -> Answer:
        raise KeyError("gpu/x")

    reporter.carry = {**reporter.carry, RunTest: fails}
    reporter.mailbox.receive([RunTest("1", "t"), ClearCheck("2", "a", "node")])
    assert await reporter.carry_out_all()
    assert [(line["id"], line["done"]) for line in lines] == [("1", False), ("2", True)]
    assert lines[0]["said"] == "error in the agent itself, please report it: KeyError: 'gpu/x'"
    assert reporter.mailbox.post.inbox.done == ("1", "2")
