from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from nodeguard.agent.reporting.credential import TokenFile
from nodeguard.agent.reporting.mailbox import Mailbox, Post
from nodeguard.agent.reporting.sender import Sender
from nodeguard.agent.reporting.spool import Spool, put
from nodeguard.agent.reporting.thread import send
from nodeguard.agent.reporting.transport import Answer, HttpsTransport, Transport
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
    name: str = "receiver"

    def post(self, body: bytes, within: float) -> Answer:
        answer = self.way.post(body, within)
        if self.kills():
            raise Killed
        return answer

    def close(self) -> None:
        self.way.close()


@dataclass
class Agent:
    """An agent in virtual time, with real connections. post: what it has written down."""

    path: Path
    addresses: list[str]
    kills: Callable[[], bool] = lambda: False
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
        token = TokenFile(str(self.path / "token"))
        ways = [
            Deadly(HttpsTransport(address, token, str(TLS / "ca.pem")), self.kills)
            for address in self.addresses
        ]
        self.sender = Sender(ways, self.mailbox, Random(7).random, self.said.append)

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
        """One turn, and what came back carried out. A kill is followed by a start."""
        try:
            wait = self.sender.turn(self.now, 2.0)
        except Killed:
            self.sender.close()
            self.start()
            return 0.1
        for instruction in self.mailbox.take():
            self.carried.append(instruction.id)
            self.mailbox.carried_out(instruction.id)
        self.write()
        return wait

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
        agent.sender.close()


def test_other_words_are_told_once_a_minute(tmp_path: Path) -> None:
    with receiving() as receiver:
        agent = Agent(tmp_path, [receiver.address])
        for at in range(180):
            agent.offer("a", message=f"{at} degrees")
            agent.run(1.0)
        assert 3 <= len(receiver.applied) <= 4
        assert len({one.digest for one in receiver.applied}) == 1
        agent.sender.close()


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
        agent.sender.close()


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
        agent.sender.close()


def test_a_receiver_that_forgot_is_told_again(tmp_path: Path) -> None:
    with receiving() as receiver:
        agent = Agent(tmp_path, [receiver.address])
        agent.offer("a")
        agent.run(15.0)
        before = receiver.applied
        receiver.applied = []
        agent.run(15.0)
        assert digests(receiver.applied) == digests(before)
        agent.sender.close()


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
        agent.sender.close()


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
        agent.sender.close()


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
        agent.sender.close()


def test_the_thread_sends_at_once_and_once_more_when_it_is_stopped(tmp_path: Path) -> None:
    with receiving() as receiver:
        agent = Agent(tmp_path, [receiver.address])
        stopped = threading.Event()
        turned = threading.Semaphore(0)

        def heard() -> str:
            turned.release()
            return ""

        receiver.fault = heard
        thread = threading.Thread(target=send, args=(agent.sender, agent.mailbox, lambda: agent.now, stopped))
        thread.start()
        agent.offer("a")
        assert turned.acquire(timeout=10.0)
        agent.offer("b")
        assert turned.acquire(timeout=10.0)
        agent.offer()
        stopped.set()
        agent.mailbox.wake.set()
        thread.join(10.0)
        assert not thread.is_alive()
        assert digests(receiver.applied) == agent.offered
        assert [one.leaving for one in receiver.applied] == [False, False, False, True]


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
        agent.sender.close()


@pytest.mark.parametrize("seed", range(2))
def test_of_two_receivers_one_at_least_hears_each_change_and_both_the_last(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    with receiving() as one, receiving() as other:
        _faulty(one, random)
        _faulty(other, random)
        agent = Agent(tmp_path, [one.address, other.address], lambda: random.random() < 0.1)
        for at in range(50):
            agent.offer(f"check-{at}")
            agent.turn()
            agent.run(random.choice([0.5, 3.0, 20.0]))
        agent.kills = lambda: False
        one.fault = other.fault = lambda: ""
        agent.run(200.0)
        for receiver in (one, other):
            places = [agent.offered.index(digest) for digest in digests(receiver.applied)]
            assert places == sorted(set(places))
            assert places[-1] == len(agent.offered) - 1
        assert {found.digest for found in one.applied + other.applied} == set(agent.offered)
        agent.sender.close()


def _faulty(receiver: Receiver, random: Random) -> None:
    receiver.fault = lambda: random.choice(FAULTS) if random.random() < 0.5 else ""
