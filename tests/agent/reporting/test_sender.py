from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from nodeguard.agent.reporting.delivery_queue import DeliveryState, Spool, append
from nodeguard.agent.reporting.endpoint_pool import EndpointPool
from nodeguard.agent.reporting.http1 import HttpResponse
from nodeguard.agent.reporting.sender import Sender
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
async def test_a_change_is_told_in_full_and_then_the_heart_beats(
    tmp_path: Path, tls: bool, log: LogLines
) -> None:
    with receiving(tls=tls) as receiver:
        agent = Agent(tmp_path, [receiver.address])
        agent.offer("a")
        await agent.run(60.0)
        assert [one.findings[0].check for one in receiver.applied] == ["a"]
        assert 5 <= receiver.beats <= 7
        agent.offer("a", "b")
        await agent.turn()
        assert len(receiver.applied[-1].findings) == 2
        assert (receiver.connections, log.errors(), len(agent.spool)) == (1, [], 0)
        await agent.close()


async def test_other_words_are_told_once_a_minute(tmp_path: Path) -> None:
    with receiving() as receiver:
        agent = Agent(tmp_path, [receiver.address])
        for at in range(180):
            agent.offer("a", message=f"{at} degrees")
            await agent.run(1.0)
        assert 3 <= len(receiver.applied) <= 4
        assert len({one.digest for one in receiver.applied}) == 1
        await agent.close()


async def test_while_nobody_hears_transitions_wait_with_their_ages(tmp_path: Path, log: LogLines) -> None:
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
        assert [one.boot_id for one in receiver.applied] == ["boot-a"] * 3
        assert [round(one.age) for one in receiver.applied] == [300, 200, 100]
        agent.offer("a")
        await agent.run(5.0)
        assert receiver.applied[-1].boot_id == "boot-b"
        await agent.close()


async def test_what_waited_is_told_by_the_name_that_the_node_has_now(tmp_path: Path) -> None:
    with receiving() as receiver:
        agent = Agent(tmp_path, [receiver.address])
        for name in ("misnamed", "node-7"):
            agent.queue.offer(
                build_report(verdict(finding(name)), agent.now, replace(FACTS, node=name)), agent.now
            )
        await agent.turn()
        await agent.turn()
        assert [(one.findings[0].check, one.node) for one in receiver.applied] == [("misnamed", "node-7"), ("node-7", "node-7")]  # fmt: skip
        await agent.close()


async def test_every_receiver_hears_and_one_that_is_gone_delays_none(tmp_path: Path) -> None:
    with receiving() as one, receiving() as other:
        other.fault = lambda: "lose request"
        agent = Agent(tmp_path, [other.address, one.address])
        agent.offer("a")
        await agent.run(30.0)
        agent.offer("b")
        await agent.run(30.0)
        assert digests(one.applied) == agent.offered
        assert (other.applied, len(agent.spool)) == ([], 0)
        other.fault = lambda: ""
        await agent.run(70.0)
        assert [found.digest for found in other.applied] == agent.offered[-1:]
        await agent.close()


async def test_a_receiver_that_forgot_is_told_again(tmp_path: Path) -> None:
    with receiving() as receiver:
        agent = Agent(tmp_path, [receiver.address])
        agent.offer("a")
        await agent.run(15.0)
        before = receiver.applied
        receiver.applied = []
        await agent.run(15.0)
        assert digests(receiver.applied) == digests(before)
        await agent.close()


async def test_an_agent_that_another_boot_keeps_out_logs_why_and_is_accepted_within_a_minute(
    tmp_path: Path,
    log: LogLines,
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
        await agent.run(31.0)
        assert digests(receiver.applied) == agent.offered
        assert log.errors() == [
            "it answered 409: see that one agent runs on the node: its log has the reason"
        ]
        await agent.run(60.0)
        assert 5 <= receiver.beats <= 9
        await agent.close()


async def test_transitions_that_are_refused_do_not_delay_what_comes_after_them(tmp_path: Path) -> None:
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


async def test_an_entry_that_can_never_be_applied_is_left_out(tmp_path: Path, log: LogLines) -> None:
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
async def test_what_goes_wrong_is_told_once_and_keeps_everything(
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


async def test_an_entry_that_this_version_cannot_read_is_left_out(tmp_path: Path, log: LogLines) -> None:
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


async def test_a_pause_begins_when_nobody_is_waited_for_any_more(tmp_path: Path, log: LogLines) -> None:
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


async def test_an_error_that_nobody_thought_of_is_told_once_and_ends_no_thread(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    log: LogLines,
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
        way = Erring(agent.transport(receiver.address), agent.kills)
        pool = EndpointPool([way], agent.queue, Random(7).random)
        agent.offer("a")
        pool.start(lambda: agent.now)
        await until_async(lambda: receiver.applied)
        await pool.end(PATIENCE)
        assert len(tried) >= 6
        assert log.errors() == ["KeyError: 'x'"]


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_happens_nothing_is_lost_or_applied_twice(
    tmp_path: Path, seed: int, log: LogLines
) -> None:
    random = Random(seed)
    with receiving() as receiver:
        faulty(receiver, random)
        agent = Agent(tmp_path, [receiver.address], lambda: random.random() < 0.1)
        asked = []
        for at in range(60):
            agent.offer(*random.sample("abcd", random.randint(0, 4)))
            if random.random() < 0.3:
                asked.append(f"i-{at}")
                receiver.instructions[asked[-1]] = DetachGpus(asked[-1], 60.0)
            await agent.turn()
            await agent.run(random.choice([0.5, 3.0, 20.0]))
        receiver.fault = lambda: ""
        agent.kills = lambda: False
        await agent.run(200.0)
        assert digests(receiver.applied) == agent.offered
        assert len({(one.boot_id, one.sequence) for one in receiver.applied}) == len(receiver.applied)
        assert sorted(agent.carried) == sorted(asked)
        assert receiver.instructions == {}
        assert (len(agent.spool), agent.spool.dropped) == (0, 0)
        assert not any("secret" in one for one in log.errors())
        await agent.close()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("beside", [False, True], ids=["", "black hole"])
async def test_of_two_receivers_one_at_least_hears_each_change_and_both_the_last(
    tmp_path: Path, seed: int, beside: bool
) -> None:
    random = Random(seed)
    with receiving() as one, receiving() as other, black_hole() as silent:
        faulty(one, random)
        faulty(other, random)
        addresses = [silent, one.address, other.address][not beside :]
        agent = Agent(tmp_path, addresses, lambda: random.random() < 0.1, silent)
        for at in range(50):
            agent.offer(f"check-{at}")
            await agent.turn()
            await agent.run(random.choice([0.5, 3.0, 20.0]))
        agent.kills = lambda: False
        one.fault = other.fault = lambda: ""
        await agent.run(200.0)
        for receiver in (one, other):
            assert len({(found.boot_id, found.sequence) for found in receiver.applied}) == len(
                receiver.applied
            )
            places = [agent.offered.index(digest) for digest in digests(receiver.applied)]
            assert places == sorted(set(places))
            assert places[-1] == len(agent.offered) - 1
        assert {found.digest for found in one.applied + other.applied} == set(agent.offered)
        await agent.close()
