from __future__ import annotations

from math import inf
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from nodeguard.agent.reporting.delivery_queue import DeliveryState, Spool, append
from nodeguard.agent.reporting.endpoint_pool import EndpointPool
from nodeguard.agent.reporting.http1 import HttpResponse
from nodeguard.agent.reporting.sender import InjectionReply, ReplyError, Sender, read_reply
from nodeguard.wire.instruction import DetachGpus
from nodeguard.wire.report import VERSION, Heartbeat
from nodeguard.wire.report_builder import build_report
from nodeguard.wire.sequence import SequenceState, accept_message
from tests.agent.reporting.receiver import closed_port, receiving
from tests.agent.reporting.scene import Agent, Deadly, black_hole, digests, faulty
from tests.logs import LogLines
from tests.waiting import PATIENCE, until_async
from tests.wire.scene import FACTS, finding, verdict


@pytest.mark.parametrize("tls", [False, True])
async def test_a_change_is_reported_in_full_and_then_heartbeats_follow(
    tmp_path: Path, tls: bool, log: LogLines
) -> None:
    with receiving(tls=tls) as receiver:
        agent = Agent(tmp_path, [receiver.address])
        agent.offer("a")
        await agent.run(60.0)
        assert [report.findings[0].check for report in receiver.applied] == ["a"]
        assert 5 <= receiver.beats <= 7
        agent.offer("a", "b")
        await agent.turn()
        assert len(receiver.applied[-1].findings) == 2
        assert (receiver.connections, log.errors(), len(agent.spool)) == (1, [], 0)
        await agent.close()


async def test_a_report_of_a_recording_is_as_old_as_it_waited(tmp_path: Path) -> None:
    with receiving() as receiver:
        agent = Agent(tmp_path, [receiver.address])
        agent.queue.speed = 60.0
        for checks in ("a", "b"):
            agent.offer(checks)
            agent.pass_by(120.0)
            await agent.turn()
        assert [report.age for report in receiver.applied] == [2.0, 2.0]
        await agent.close()


async def test_each_reply_has_the_policy_on_injected_faults(tmp_path: Path) -> None:
    with receiving() as receiver:
        receiver.injectable = ("gpu-*",)
        agent = Agent(tmp_path, [receiver.address])
        [sender] = agent.senders
        assert sender.injection_reply == InjectionReply(sender.transport.name, (), -inf)
        agent.offer("a")
        await agent.turn()
        first = sender.injection_reply
        assert (first.patterns, first.at <= agent.now.mono) == (("gpu-*",), True)
        receiver.injectable = ()
        await agent.run(30.0)
        assert sender.injection_reply.patterns == ()
        assert sender.injection_reply.at > first.at
        receiver.fault = lambda: "busy"
        receiver.injectable, before = ("*",), sender.injection_reply
        await agent.run(30.0)
        assert sender.injection_reply == before
        await agent.close()


async def test_other_messages_are_reported_once_a_minute(tmp_path: Path) -> None:
    with receiving() as receiver:
        agent = Agent(tmp_path, [receiver.address])
        for at in range(180):
            agent.offer("a", message=f"{at} degrees")
            await agent.run(1.0)
        assert 3 <= len(receiver.applied) <= 4
        assert len({report.digest for report in receiver.applied}) == 1
        await agent.close()


async def test_transitions_are_spooled_with_their_ages(tmp_path: Path, log: LogLines) -> None:
    agent = Agent(tmp_path, [f"http://127.0.0.1:{closed_port()}/"])
    for checks in (("a",), ("a", "b"), ()):
        agent.offer(*checks)
        await agent.run(100.0)
    assert len(log.errors()) == 1
    assert "Connection refused" in log.errors()[0]
    with receiving() as receiver:
        agent.addresses = [receiver.address]
        agent.start()
        agent.now = replace(agent.now, boot_id="boot-b", mono=30.0)
        await agent.run(5.0)
        assert digests(receiver.applied) == agent.offered
        assert [report.boot_id for report in receiver.applied] == ["boot-a"] * 3
        assert [round(report.age) for report in receiver.applied] == [300, 200, 100]
        agent.offer("a")
        await agent.run(5.0)
        assert receiver.applied[-1].boot_id == "boot-b"
        await agent.close()


async def test_spooled_transitions_get_the_present_node_name(tmp_path: Path) -> None:
    with receiving() as receiver:
        agent = Agent(tmp_path, [receiver.address])
        for name in ("misnamed", "node-7"):
            agent.queue.offer(
                build_report(verdict(finding(name)), agent.now, replace(FACTS, node=name)), agent.now
            )
        await agent.turn()
        await agent.turn()
        assert [(report.findings[0].check, report.node) for report in receiver.applied] == [("misnamed", "node-7"), ("node-7", "node-7")]  # fmt: skip
        await agent.close()


async def test_an_aggregator_that_is_down_delays_no_other(tmp_path: Path) -> None:
    with receiving() as first, receiving() as second:
        second.fault = lambda: "lose request"
        agent = Agent(tmp_path, [second.address, first.address])
        agent.offer("a")
        await agent.run(30.0)
        agent.offer("b")
        await agent.run(30.0)
        assert digests(first.applied) == agent.offered
        assert (second.applied, len(agent.spool)) == ([], 0)
        second.fault = lambda: ""
        await agent.run(70.0)
        assert [report.digest for report in second.applied] == agent.offered[-1:]
        await agent.close()


async def test_a_restarted_aggregator_gets_the_report_again(tmp_path: Path) -> None:
    with receiving() as receiver:
        agent = Agent(tmp_path, [receiver.address])
        agent.offer("a")
        await agent.run(15.0)
        before = receiver.applied
        receiver.applied = []
        await agent.run(15.0)
        assert digests(receiver.applied) == digests(before)
        await agent.close()


async def test_a_conflict_with_another_boot_is_logged_and_ends_within_a_minute(
    tmp_path: Path, log: LogLines
) -> None:
    with receiving() as receiver:
        agent = Agent(tmp_path, [receiver.address])
        receiver.now = lambda: agent.now.mono
        receiver.memory["node-7"], _ = accept_message(
            SequenceState(),
            Heartbeat(version=VERSION, node="node-7", boot_id="forged", sequence=1),
            agent.now.mono,
        )
        agent.offer("a")
        await agent.run(29.0)
        assert receiver.applied == []
        problem = "it answered 409: see that one agent runs on the node: its log has the reason"
        assert [sender.problem for sender in agent.senders] == [problem]
        await agent.run(31.0)
        assert digests(receiver.applied) == agent.offered
        assert (log.errors(), agent.senders[0].problem) == ([problem], "")
        await agent.run(60.0)
        assert 5 <= receiver.beats <= 9
        await agent.close()


async def test_refused_transitions_do_not_delay_later_ones(tmp_path: Path) -> None:
    with receiving() as receiver:
        agent = Agent(tmp_path, [receiver.address])
        receiver.now = lambda: agent.now.mono
        for check in ("a", "b", "c"):
            agent.offer(check)
        receiver.memory["node-7"], _ = accept_message(
            SequenceState(), Heartbeat(version=VERSION, node="node-7", boot_id="boot-a", sequence=agent.queue.state.sequence + 500), agent.now.mono
        )  # fmt: skip
        agent.pass_by(1.0)
        await agent.run(0.5)
        assert digests(receiver.applied) == agent.offered[-1:]
        assert (len(agent.spool), agent.spool.dropped) == (0, 3)
        await agent.close()


async def test_an_entry_that_is_always_refused_is_dropped(tmp_path: Path, log: LogLines) -> None:
    with receiving() as receiver:
        script = ["refuse"]
        receiver.fault = lambda: script.pop() if script else ""
        agent = Agent(tmp_path, [receiver.address])
        agent.offer("a")
        agent.offer("b")
        await agent.run(5.0)
        assert digests(receiver.applied) == agent.offered[1:]
        assert (receiver.applied[-1].dropped, len(log.errors())) == (1, 1)
        await agent.close()


@pytest.mark.parametrize("fault", ["garble", "another", "truncate", "busy", "unauthorised", "moved http://x/", "garble request"])  # fmt: skip
async def test_a_failed_exchange_is_logged_once_and_keeps_the_spool(
    tmp_path: Path, fault: str, log: LogLines
) -> None:
    with receiving() as receiver:
        receiver.fault = lambda: fault
        agent = Agent(tmp_path, [receiver.address])
        agent.offer("a")
        await agent.run(200.0)
        assert len(agent.spool) == 1
        assert len(log.errors()) == 1
        assert ": " in log.errors()[0]
        assert "secret" not in log.errors()[0]
        receiver.fault = lambda: ""
        await agent.run(80.0)
        assert digests(receiver.applied) == agent.offered
        assert (len(receiver.applied), len(agent.spool)) == (1, 0)
        await agent.close()


async def test_an_entry_of_an_unknown_format_is_dropped(tmp_path: Path, log: LogLines) -> None:
    with receiving() as receiver:
        agent = Agent(tmp_path, [receiver.address])
        agent.state = DeliveryState(spool=append(Spool(), b"{}"))
        agent.start()
        agent.offer("a")
        await agent.run(1.0)
        assert digests(receiver.applied) == agent.offered
        assert "it is skipped" in log.errors()[0]
        assert receiver.applied[-1].dropped == 1
        await agent.close()


async def test_the_retry_delay_begins_after_the_exchange(tmp_path: Path, log: LogLines) -> None:
    class Slow(Deadly):
        async def post(self, body: bytes, timeout: float) -> HttpResponse:
            agent.pass_by(timeout)
            return await super().post(body, timeout)

    agent = Agent(tmp_path, [])
    agent.senders = [
        Sender(
            Slow(agent.transport(f"http://127.0.0.1:{closed_port()}/"), agent.kills),
            agent.queue,
            Random(7).random,
        )
    ]
    agent.offer("a")
    assert await agent.turn() >= 0.5


async def test_an_unexpected_error_is_logged_once_and_ends_no_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: LogLines
) -> None:
    monkeypatch.setattr("nodeguard.agent.reporting.endpoint_pool._ERROR_PAUSE", 0.01)
    errors, tried = [KeyError("x")] * 5, []

    class Erring(Deadly):
        async def post(self, body: bytes, timeout: float) -> HttpResponse:
            tried.append(body)
            if errors:
                raise errors.pop()
            return await super().post(body, timeout)

    with receiving() as receiver:
        agent = Agent(tmp_path, [])
        transport = Erring(agent.transport(receiver.address), agent.kills)
        pool = EndpointPool([transport], agent.queue, Random(7).random)
        agent.offer("a")
        pool.start(lambda: agent.now)
        await until_async(lambda: receiver.applied)
        await pool.end(PATIENCE)
        assert len(tried) >= 6
        assert log.errors() == ["KeyError: 'x'"]


@pytest.mark.parametrize("seed", range(4))
async def test_with_random_faults_no_transition_is_lost_or_applied_twice(
    tmp_path: Path, seed: int, log: LogLines
) -> None:
    random = Random(seed)
    with receiving() as receiver:
        faulty(receiver, random)
        agent = Agent(tmp_path, [receiver.address], lambda: random.random() < 0.1)
        sent = []
        for at in range(60):
            agent.offer(*random.sample("abcd", random.randint(0, 4)))
            if random.random() < 0.3:
                sent.append(f"i-{at}")
                receiver.instructions[sent[-1]] = DetachGpus(sent[-1], 60.0)
            await agent.turn()
            await agent.run(random.choice([0.5, 3.0, 20.0]))
        receiver.fault = lambda: ""
        agent.kills = lambda: False
        await agent.run(200.0)
        assert digests(receiver.applied) == agent.offered
        assert len({(report.boot_id, report.sequence) for report in receiver.applied}) == len(
            receiver.applied
        )
        assert sorted(agent.carried_out) == sorted(sent)
        assert receiver.instructions == {}
        assert (len(agent.spool), agent.spool.dropped) == (0, 0)
        assert not any("secret" in error for error in log.errors())
        await agent.close()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("beside", [False, True], ids=["", "black hole"])
async def test_two_aggregators_together_get_every_change(tmp_path: Path, seed: int, beside: bool) -> None:
    random = Random(seed)
    with receiving() as first, receiving() as second, black_hole() as silent:
        faulty(first, random)
        faulty(second, random)
        addresses = [silent, first.address, second.address][not beside :]
        agent = Agent(tmp_path, addresses, lambda: random.random() < 0.1, silent)
        for at in range(50):
            agent.offer(f"check-{at}")
            await agent.turn()
            await agent.run(random.choice([0.5, 3.0, 20.0]))
        agent.kills = lambda: False
        first.fault = second.fault = lambda: ""
        await agent.run(200.0)
        for receiver in (first, second):
            assert len({(report.boot_id, report.sequence) for report in receiver.applied}) == len(
                receiver.applied
            )
            positions = [agent.offered.index(digest) for digest in digests(receiver.applied)]
            assert positions == sorted(set(positions))
            assert positions[-1] == len(agent.offered) - 1
        assert {report.digest for report in first.applied + second.applied} == set(agent.offered)
        await agent.close()


BEAT = Heartbeat(version=VERSION, node="n", boot_id="b", sequence=1)


def refused(status: int, body: bytes) -> str:
    with pytest.raises(ReplyError) as error:
        read_reply(HttpResponse(status, body), BEAT)
    return str(error.value)


def test_an_aggregators_own_error_is_logged() -> None:
    message = refused(403, b"nodeguard: this is another node's: set `node`\n")
    assert message == "it answered 403: this is another node's: set `node`"


def test_only_a_conflict_is_a_refusal() -> None:
    for status, expected in ((409, True), (403, False), (500, False)):
        with pytest.raises(ReplyError) as error:
            read_reply(HttpResponse(status, b"nodeguard: why: remedy\n"), BEAT)
        assert error.value.is_refused == expected


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>no</html>",
        b"nodeguard: two\nlines",
        b"nodeguard: \x1b[2J",
        b"nodeguard: \xff\xfe",
        b"nodeguard: " + b"word " * 100,
        b"nodeguard: " + b"t" * 80,
    ],
)
def test_any_other_text_stays_out_of_the_log(body: bytes) -> None:
    assert refused(403, body) == "it answered 403: see that the token is this node's own"
    assert refused(500, body) == "it answered 500: its log has the reason"
