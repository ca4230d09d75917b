from __future__ import annotations

from msgspec.structs import replace

from nodeguard.agent.control import InstructionOutcome
from nodeguard.agent.reporting.delivery_queue import DeliveryQueue, decode_entry
from nodeguard.agent.reporting.reporter import Reporter, node_facts
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.model.finding import Health
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Component, Observation, Reading
from nodeguard.wire.instruction import ClearFinding, DetachGpus, Instruction
from nodeguard.wire.report import InstructionResult, Report
from tests.logs import LogLines
from tests.wire.scene import NOW, finding, verdict

CATALOGUE, _ = load_catalogue()
SEEN = Reading("nvml", 1.0, (Observation("nvml", "gpu/0000:1b:00", component=Component("GPU-1", "H100")),))


def new_reporter(*supported: type[Instruction]) -> Reporter:

    async def done(instruction: Instruction) -> InstructionOutcome:
        return InstructionOutcome(done=True, message=f"did {instruction.id}")

    return Reporter(DeliveryQueue(), node_facts("node-1", CATALOGUE), dict.fromkeys(supported, done))


def waiting(reporter: Reporter) -> list[Report]:
    return [decode_entry(entry.data)[0] for entry in reporter.queue.state.spool.entries]


def test_a_report_has_the_node_the_catalogue_and_the_inventory() -> None:
    reporter = new_reporter()
    assert reporter.offer(verdict(finding()), NOW, [SEEN], complete=True)
    assert not reporter.offer(verdict(finding()), NOW, [SEEN], complete=True)
    [report] = waiting(reporter)
    assert (report.node, len(report.catalogue)) == ("node-1", 16)
    assert report.inventory.components["gpu/0000:1b:00"].id == "GPU-1"


def test_a_new_driver_is_reported_as_received_also_after_a_reboot() -> None:
    def driver(version: str) -> list[Reading]:
        return [Reading("host", 1.0, (Observation("host", "node", signals={"driver.version": version}),))]

    def offer(reporter: Reporter, version: str, at: Instant) -> Report:
        reporter.offer(verdict(finding()), at, driver(version), complete=True)
        assert reporter.queue.latest is not None
        return reporter.queue.latest[0]

    reporter = new_reporter()
    assert offer(reporter, "570", NOW).received == {}
    rebooted = Instant(NOW.wall + 100.0, 5.0, "boot-b")
    after = Reporter(DeliveryQueue(), reporter.facts, {}, reporter.receipts)
    assert offer(after, "580", rebooted).received == {"driver/580": 0.0}
    again = Reporter(DeliveryQueue(), reporter.facts, {}, after.receipts)
    assert offer(again, "580", replace(rebooted, wall=rebooted.wall + 60.0)).received == {"driver/580": 60.0}


def test_before_every_source_was_read_only_faults_are_reported() -> None:
    reporter = new_reporter()
    assert not reporter.offer(replace(verdict(), health=Health.OK), NOW, [], complete=False)
    assert reporter.offer(verdict(finding()), NOW, [], complete=False)


def test_another_catalogue_has_another_digest() -> None:
    other = node_facts("node-1", load_catalogue([])[0])
    assert other.catalogue == node_facts("node-1", CATALOGUE).catalogue
    assert node_facts("node-1", type(CATALOGUE)()).catalogue != other.catalogue


async def test_an_instruction_is_carried_out_once_and_an_unsupported_one_refused(log: LogLines) -> None:
    reporter = new_reporter(ClearFinding)
    reporter.queue.receive([ClearFinding("1", "a", "node"), DetachGpus("2", 60.0)])
    assert await reporter.carry_out_all()
    assert not await reporter.carry_out_all()
    assert [(line["id"], line["msg"], line["outcome"]) for line in log.lines] == [
        ("1", "instruction carried out", "did 1"),
        ("2", "instruction refused", "this agent does not support the instruction"),
    ]
    assert reporter.queue.state.inbox.done == ("1", "2")
    assert reporter.queue.state.inbox.results == (
        InstructionResult("1", done=True, message="did 1"),
        InstructionResult("2", done=False, message="this agent does not support the instruction"),
    )
    assert reporter.queue.stored == ()


async def test_a_failed_instruction_is_answered_and_affects_no_other(log: LogLines) -> None:
    reporter = new_reporter(ClearFinding)

    async def fails(_: Instruction) -> InstructionOutcome:
        raise KeyError("gpu/x")

    reporter.executors = {**reporter.executors, DetachGpus: fails}
    reporter.queue.receive([DetachGpus("1", 60.0), ClearFinding("2", "a", "node")])
    assert await reporter.carry_out_all()
    assert [(line["id"], line["msg"]) for line in log.lines] == [
        ("1", "instruction refused"),
        ("2", "instruction carried out"),
    ]
    assert log.lines[0]["outcome"] == "error in the agent itself, please report it: KeyError: 'gpu/x'"
    assert reporter.queue.state.inbox.done == ("1", "2")
