from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from nodeguard.agent.reporting.delivery_state import DeliveryState
from nodeguard.agent.reporting.http1 import HttpResponse
from nodeguard.agent.reporting.sender import Sender
from nodeguard.agent.reporting.senders import Senders
from nodeguard.agent.reporting.spool import Spool, put
from nodeguard.wire.instruction import RunTest
from nodeguard.wire.report import VERSION, Heartbeat
from nodeguard.wire.report_builder import build_report
from nodeguard.wire.sequence import SequenceState, accept_message
from tests.agent.reporting.receiver import closed_port, receiving
from tests.agent.reporting.scene import Agent, Deadly, black_hole, digests, faulty
from tests.waiting import PATIENCE, until
from tests.wire.scene import FACTS, finding, verdict


@pytest.mark.parametrize("tls", [False, True])
def test_a_change_is_told_in_full_and_then_the_heart_beats(tmp_path: Path, tls: bool) -> None:
    with receiving(tls=tls) as receiver:
        agent = Agent(tmp_path, [receiver.address])
        agent.offer("a")
        agent.run(60.0)
        assert [one.findings[0].check for one in receiver.applied] == ["a"]
        assert 5 <= receiver.beats <= 7
        agent.offer("a", "b")
        agent.turn()
        assert len(receiver.applied[-1].findings) == 2
        assert (receiver.connections, agent.said, len(agent.spool)) == (1, [], 0)
        agent.close()


def test_other_words_are_told_once_a_minute(tmp_path: Path) -> None:
    with receiving() as receiver:
        agent = Agent(tmp_path, [receiver.address])
        for at in range(180):
            agent.offer("a", message=f"{at} degrees")
            agent.run(1.0)
        assert 3 <= len(receiver.applied) <= 4
        assert len({one.digest for one in receiver.applied}) == 1
        agent.close()


def test_while_nobody_hears_transitions_wait_with_their_ages(tmp_path: Path) -> None:
    agent = Agent(tmp_path, [f"http://127.0.0.1:{closed_port()}/"])
    for checks in (("a",), ("a", "b"), ()):
        agent.offer(*checks)
        agent.run(100.0)
    assert len(agent.said) == 1
    assert "Connection refused" in agent.said[0]
    with receiving() as receiver:
        agent.addresses = [receiver.address]
        agent.start()
        agent.now = replace(agent.now, boot_id="boot-b", mono=30.0)
        agent.run(5.0)
        assert digests(receiver.applied) == agent.offered
        assert [one.boot_id for one in receiver.applied] == ["boot-a"] * 3
        assert [round(one.age) for one in receiver.applied] == [300, 200, 100]
        agent.offer("a")
        agent.run(5.0)
        assert receiver.applied[-1].boot_id == "boot-b"
        agent.close()


def test_what_waited_is_told_by_the_name_that_the_node_has_now(tmp_path: Path) -> None:
    with receiving() as receiver:
        agent = Agent(tmp_path, [receiver.address])
        for name in ("misnamed", "node-7"):
            agent.mailbox.offer(
                build_report(verdict(finding(name)), agent.now, replace(FACTS, node=name)), agent.now
            )
        agent.turn()
        agent.turn()
        assert [(one.findings[0].check, one.node) for one in receiver.applied] == [("misnamed", "node-7"), ("node-7", "node-7")]  # fmt: skip
        agent.close()


def test_every_receiver_hears_and_one_that_is_gone_delays_none(tmp_path: Path) -> None:
    with receiving() as one, receiving() as other:
        other.fault = lambda: "lose request"
        agent = Agent(tmp_path, [other.address, one.address])
        agent.offer("a")
        agent.run(30.0)
        agent.offer("b")
        agent.run(30.0)
        assert digests(one.applied) == agent.offered
        assert (other.applied, len(agent.spool)) == ([], 0)
        other.fault = lambda: ""
        agent.run(70.0)
        assert [found.digest for found in other.applied] == agent.offered[-1:]
        agent.close()


def test_a_receiver_that_forgot_is_told_again(tmp_path: Path) -> None:
    with receiving() as receiver:
        agent = Agent(tmp_path, [receiver.address])
        agent.offer("a")
        agent.run(15.0)
        before = receiver.applied
        receiver.applied = []
        agent.run(15.0)
        assert digests(receiver.applied) == digests(before)
        agent.close()


def test_an_agent_that_another_boot_keeps_out_logs_why_and_is_accepted_within_a_minute(
    tmp_path: Path,
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
        agent.run(29.0)
        assert receiver.applied == []
        agent.run(31.0)
        assert digests(receiver.applied) == agent.offered
        assert agent.said == [
            "receiver: it answered 409: see that one agent runs on the node: its log says why"
        ]
        agent.run(60.0)
        assert 5 <= receiver.beats <= 9
        agent.close()


def test_transitions_that_are_refused_do_not_delay_what_comes_after_them(tmp_path: Path) -> None:
    with receiving() as receiver:
        agent = Agent(tmp_path, [receiver.address])
        receiver.now = lambda: agent.now.mono
        for check in ("a", "b", "c"):
            agent.offer(check)
        receiver.memory["node-7"], _ = accept_message(
            SequenceState(), Heartbeat(version=VERSION, node="node-7", boot_id="boot-a", sequence=agent.mailbox.state.sequence + 500), agent.now.mono
        )  # fmt: skip
        agent.pass_by(1.0)
        agent.run(0.5)
        assert digests(receiver.applied) == agent.offered[-1:]
        assert (len(agent.spool), agent.spool.dropped) == (0, 3)
        agent.close()


def test_an_entry_that_can_never_be_applied_is_left_out(tmp_path: Path) -> None:
    with receiving() as receiver:
        script = ["refuse"]
        receiver.fault = lambda: script.pop() if script else ""
        agent = Agent(tmp_path, [receiver.address])
        agent.offer("a")
        agent.offer("b")
        agent.run(5.0)
        assert digests(receiver.applied) == agent.offered[1:]
        assert (receiver.applied[-1].dropped, len(agent.said)) == (1, 1)
        agent.close()


@pytest.mark.parametrize("fault", ["garble", "another", "truncate", "busy", "unauthorised", "moved http://x/", "garble request"])  # fmt: skip
def test_what_goes_wrong_is_told_once_and_keeps_everything(tmp_path: Path, fault: str) -> None:
    with receiving() as receiver:
        receiver.fault = lambda: fault
        agent = Agent(tmp_path, [receiver.address])
        agent.offer("a")
        agent.run(200.0)
        assert len(agent.spool) == 1
        assert len(agent.said) == 1
        assert ": " in agent.said[0]
        assert "secret" not in agent.said[0]
        receiver.fault = lambda: ""
        agent.run(80.0)
        assert digests(receiver.applied) == agent.offered
        assert (len(receiver.applied), len(agent.spool)) == (1, 0)
        agent.close()


def test_an_entry_that_this_version_cannot_read_is_left_out(tmp_path: Path) -> None:
    with receiving() as receiver:
        agent = Agent(tmp_path, [receiver.address])
        agent.post = DeliveryState(spool=put(Spool(), b"{}"))
        agent.start()
        agent.offer("a")
        agent.run(1.0)
        assert digests(receiver.applied) == agent.offered
        assert "it is left out" in agent.said[0]
        assert receiver.applied[-1].dropped == 1
        agent.close()


def test_a_pause_begins_when_nobody_is_waited_for_any_more(tmp_path: Path) -> None:
    class Slow(Deadly):
        def post(self, body: bytes, within: float) -> HttpResponse:
            agent.pass_by(within)
            return super().post(body, within)

    agent = Agent(tmp_path, [])
    agent.senders = [
        Sender(
            Slow(agent.way(f"http://127.0.0.1:{closed_port()}/"), agent.kills),
            agent.mailbox,
            Random(7).random,
            agent.said.append,
        )
    ]
    agent.offer("a")
    assert agent.turn() >= 0.5


def test_an_error_that_nobody_thought_of_is_told_once_and_ends_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodeguard.agent.reporting.thread._PAUSE", 0.01)
    errors, tried = [KeyError("x")] * 5, []

    class Erring(Deadly):
        def post(self, body: bytes, within: float) -> HttpResponse:
            tried.append(body)
            if errors:
                raise errors.pop()
            return super().post(body, within)

    with receiving() as receiver:
        agent = Agent(tmp_path, [])
        way = Erring(agent.way(receiver.address), agent.kills)
        senders = Senders([way], agent.mailbox, Random(7).random, agent.said.append)
        agent.offer("a")
        senders.begin(lambda: agent.now)
        until(lambda: receiver.applied)
        senders.end(PATIENCE)
        assert len(tried) >= 6
        assert agent.said == ["receiver: error in the agent itself, please report it: KeyError: 'x'"]


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_nothing_is_lost_or_applied_twice(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    with receiving() as receiver:
        faulty(receiver, random)
        agent = Agent(tmp_path, [receiver.address], lambda: random.random() < 0.1)
        asked = []
        for at in range(60):
            agent.offer(*random.sample("abcd", random.randint(0, 4)))
            if random.random() < 0.3:
                asked.append(f"i-{at}")
                receiver.instructions[asked[-1]] = RunTest(asked[-1], "t")
            agent.turn()
            agent.run(random.choice([0.5, 3.0, 20.0]))
        receiver.fault = lambda: ""
        agent.kills = lambda: False
        agent.run(200.0)
        assert digests(receiver.applied) == agent.offered
        assert len({(one.boot_id, one.sequence) for one in receiver.applied}) == len(receiver.applied)
        assert sorted(agent.carried) == sorted(asked)
        assert receiver.instructions == {}
        assert (len(agent.spool), agent.spool.dropped) == (0, 0)
        assert not any("secret" in one for one in agent.said)
        agent.close()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("beside", [False, True], ids=["", "black hole"])
def test_of_two_receivers_one_at_least_hears_each_change_and_both_the_last(
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
            agent.turn()
            agent.run(random.choice([0.5, 3.0, 20.0]))
        agent.kills = lambda: False
        one.fault = other.fault = lambda: ""
        agent.run(200.0)
        for receiver in (one, other):
            assert len({(found.boot_id, found.sequence) for found in receiver.applied}) == len(
                receiver.applied
            )
            places = [agent.offered.index(digest) for digest in digests(receiver.applied)]
            assert places == sorted(set(places))
            assert places[-1] == len(agent.offered) - 1
        assert {found.digest for found in one.applied + other.applied} == set(agent.offered)
        agent.close()
