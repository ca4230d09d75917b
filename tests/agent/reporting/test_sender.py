from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from nodeguard.agent.reporting.credential import TokenFile
from nodeguard.agent.reporting.https import HttpsTransport
from nodeguard.agent.reporting.mailbox import Mailbox, Post
from nodeguard.agent.reporting.sender import Sender
from nodeguard.agent.reporting.spool import Spool, put
from nodeguard.agent.reporting.thread import Senders
from nodeguard.agent.reporting.transport import Answer, Transport
from nodeguard.model.instant import Instant
from nodeguard.wire.instruction import RunTest
from nodeguard.wire.of_verdict import report
from nodeguard.wire.report import Report
from tests.agent.reporting.receiver import TLS, Receiver, closed_port, receiving
from tests.wire.scene import FACTS, NOW, finding, verdict


class Killed(BaseException):
    """The agent was killed."""


@dataclass
class Deadly:
    """A transport after whose answer the agent may be killed."""

    way: Transport
    kills: Callable[[], bool]
    patience: float = 2.0
    name: str = "receiver"

    def post(self, body: bytes, within: float) -> Answer:
        answer = self.way.post(body, min(within, self.patience))
        if self.kills():
            raise Killed
        return answer

    def hurry(self, until: float) -> None:
        self.way.hurry(until)

    def close(self) -> None:
        self.way.close()


@dataclass
class Agent:
    """An agent in virtual time, with real connections and a thread for each. post: what it has written down."""

    path: Path
    addresses: list[str]
    kills: Callable[[], bool] = lambda: False
    silent: str = ""
    now: Instant = NOW
    said: list[str] = field(default_factory=list)
    offered: list[str] = field(default_factory=list)
    carried: list[str] = field(default_factory=list)
    post: Post = field(default_factory=Post)

    def __post_init__(self) -> None:
        (self.path / "token").write_text("secret")
        self.start()

    def start(self) -> None:
        self.mailbox = Mailbox(self.post)
        self.senders = [
            Sender(
                Deadly(self.way(one), self.kills, 0.02 if one == self.silent else 2.0),
                self.mailbox,
                Random(7).random,
                self.said.append,
            )
            for one in self.addresses
        ]

    def way(self, address: str) -> Transport:
        return HttpsTransport(address, TokenFile(str(self.path / "token")), str(TLS / "ca.pem"))

    def close(self) -> None:
        for one in self.senders:
            one.transport.close()

    @property
    def spool(self) -> Spool:
        return self.mailbox.post.spool

    def write(self) -> None:
        self.post = self.mailbox.post
        self.mailbox.written = self.post.inbox.done

    def offer(self, *checks: str, message: str = "") -> None:
        one = report(verdict(*(finding(check, message=message) for check in checks)), self.now, FACTS)
        if not self.offered or self.offered[-1] != one.digest:
            self.offered.append(one.digest)
        self.mailbox.offer(one, self.now)
        self.write()

    def turn(self) -> float:
        """One turn of all at once, and what came back carried out. A kill is followed by a start."""
        with ThreadPoolExecutor(max(1, len(self.senders))) as threads:
            waits = list(threads.map(self.turn_one, self.senders))
        if -inf in waits:
            self.close()
            self.start()
            return 0.1
        for instruction in self.mailbox.take():
            self.carried.append(instruction.id)
            self.mailbox.carried_out(instruction.id)
        self.write()
        return min(waits)

    def turn_one(self, sender: Sender) -> float:
        try:
            return sender.turn(lambda: self.now)
        except Killed:
            return -inf

    def pass_by(self, seconds: float) -> None:
        self.now = replace(self.now, wall=self.now.wall + seconds, mono=self.now.mono + seconds)

    def run(self, seconds: float) -> None:
        end = self.now.mono + seconds
        while self.now.mono < end:
            self.pass_by(min(max(self.turn(), 0.001), end - self.now.mono))


def digests(applied: list[Report]) -> list[str]:
    """What was applied, without what says the same again."""
    return [one.digest for at, one in enumerate(applied) if at == 0 or applied[at - 1].digest != one.digest]


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
        agent.post = Post(spool=put(Spool(), b"{}"))
        agent.start()
        agent.offer("a")
        agent.run(1.0)
        assert digests(receiver.applied) == agent.offered
        assert "it is left out" in agent.said[0]
        assert receiver.applied[-1].dropped == 1
        agent.close()


@contextmanager
def black_hole() -> Iterator[str]:
    """The address of somebody who takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"http://127.0.0.1:{silent.getsockname()[1]}/"


@contextmanager
def sending(agent: Agent) -> Iterator[Senders]:
    """The threads of an agent's senders, ended at the end."""
    senders = Senders(
        [agent.way(one) for one in agent.addresses], agent.mailbox, Random(7).random, agent.said.append
    )
    senders.begin(lambda: agent.now)
    try:
        yield senders
    finally:
        senders.end(10.0)


def until(condition: Callable[[], object], within: float = 10.0) -> float:
    """Seconds until something is so, which it must be in time."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < within
        time.sleep(0.002)
    return time.monotonic() - began


def test_a_pause_begins_when_nobody_is_waited_for_any_more(tmp_path: Path) -> None:
    class Slow(Deadly):
        def post(self, body: bytes, within: float) -> Answer:
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


def test_the_thread_sends_at_once_and_once_more_when_it_is_stopped(tmp_path: Path) -> None:
    with receiving() as receiver:
        agent = Agent(tmp_path, [receiver.address])
        with sending(agent):
            agent.offer("a")
            until(lambda: len(receiver.applied) == 1)
            agent.offer("b")
            until(lambda: len(receiver.applied) == 2)
            agent.offer()
        assert digests(receiver.applied) == agent.offered
        assert [one.leaving for one in receiver.applied] == [False, False, False, True]


def test_who_never_answers_delays_nobody_neither_a_change_nor_the_end(tmp_path: Path) -> None:
    with receiving() as receiver, black_hole() as silent:
        agent = Agent(tmp_path, [silent, receiver.address, silent])
        with sending(agent) as senders:
            for at in range(20):
                agent.offer(f"check-{at}")
                assert until(lambda: digests(receiver.applied) == agent.offered) < 1.0
            agent.offer("last")
            began = time.monotonic()
            senders.end(10.0)
            assert time.monotonic() - began < 1.5
        assert digests(receiver.applied) == agent.offered
        assert receiver.applied[-1].leaving
        assert sum(one.leaving for one in receiver.applied) == 1


def test_every_receiver_that_hears_is_told_of_the_end(tmp_path: Path) -> None:
    with receiving() as one, receiving(tls=True) as other, black_hole() as silent:
        agent = Agent(tmp_path, [one.address, silent, other.address])
        with sending(agent):
            agent.offer("a")
            until(lambda: one.applied and other.applied)
        for receiver in (one, other):
            assert [found.leaving for found in receiver.applied] == [False, True]
            assert digests(receiver.applied) == agent.offered


def test_an_answer_that_is_under_way_at_the_end_is_waited_for(tmp_path: Path) -> None:
    with receiving() as receiver:
        asked, answer = threading.Event(), threading.Event()

        def slow() -> str:
            asked.set()
            answer.wait(10.0)
            return ""

        receiver.fault = slow
        agent = Agent(tmp_path, [receiver.address])
        with sending(agent):
            agent.offer("a")
            assert asked.wait(10.0)
            threading.Timer(0.1, answer.set).start()
        assert [one.leaving for one in receiver.applied] == [False, True]


def test_an_error_that_nobody_thought_of_is_told_once_and_ends_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodeguard.agent.reporting.thread._PAUSE", 0.01)
    errors, tried = [KeyError("x")] * 5, []

    class Erring(Deadly):
        def post(self, body: bytes, within: float) -> Answer:
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
        senders.end(10.0)
        assert len(tried) >= 6
        assert agent.said == ["receiver: error in the agent itself, please report it: KeyError: 'x'"]


def test_an_end_that_cannot_be_told_is_no_reason_to_stay(tmp_path: Path) -> None:
    agent = Agent(tmp_path, [f"http://127.0.0.1:{closed_port()}/"])
    began = time.monotonic()
    with sending(agent):
        agent.offer("a")
        until(lambda: agent.said)
    assert time.monotonic() - began < 1.5
    assert len(agent.spool) == 1


def test_sending_imports_nothing_but_the_standard_library_and_what_is_here_anyway() -> None:
    code = (
        "import sys, nodeguard.agent.reporting.thread; "
        "print(sorted({'aiohttp', 'kubernetes', 'pydantic', 'requests', 'urllib3', 'httpx', 'asyncio'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said == "[]\n"


FAULTS = ["lose request", "lose reply", "late", "duplicate", "garble", "garble request", "truncate", "another",
          "busy", "close", "close silently", "not HTTP"]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_nothing_is_lost_or_applied_twice(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    with receiving() as receiver:
        _faulty(receiver, random)
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
        _faulty(one, random)
        _faulty(other, random)
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


@pytest.mark.parametrize("seed", range(4))
def test_threads_that_send_while_much_changes_lose_nothing_and_keep_the_order(
    tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    harmless = ["", "", "duplicate", "close", "close silently"]
    with receiving() as one, receiving() as other, black_hole() as silent:
        one.fault = other.fault = lambda: random.choice(harmless)
        agent = Agent(tmp_path, [one.address, silent, other.address])
        with sending(agent):
            for at in range(300):
                agent.offer(f"check-{at}")
                if len(agent.spool) > 8 or random.random() < 0.2:
                    until(lambda: len(agent.spool) <= random.randint(0, 8))
            until(lambda: not agent.spool)
        for receiver in (one, other):
            numbers = [found.sequence for found in receiver.applied]
            places = [agent.offered.index(digest) for digest in digests(receiver.applied)]
            assert numbers == sorted(set(numbers))
            assert places == sorted(set(places))
            assert places[-1] == len(agent.offered) - 1
            assert receiver.applied[-1].leaving
        assert {found.digest for found in one.applied + other.applied} == set(agent.offered)
        assert agent.spool.dropped == 0


def _faulty(receiver: Receiver, random: Random) -> None:
    receiver.fault = lambda: random.choice(FAULTS) if random.random() < 0.5 else ""
