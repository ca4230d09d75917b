from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from nodeguard.agent.reporting.http1 import DEADLINE
from nodeguard.agent.reporting.senders import Senders
from tests.agent.reporting.receiver import closed_port, receiving
from tests.agent.reporting.scene import Agent, black_hole, digests, seconds_until
from tests.waiting import PATIENCE, PROMPTLY, until

pytestmark = pytest.mark.usefixtures("patient_end")


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
        senders.end(PATIENCE)


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
                assert seconds_until(lambda: digests(receiver.applied) == agent.offered) < DEADLINE
            agent.offer("last")
            began = time.monotonic()
            senders.end(PATIENCE)
            assert time.monotonic() - began < DEADLINE
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
            answer.wait(PATIENCE)
            return ""

        receiver.fault = slow
        agent = Agent(tmp_path, [receiver.address])
        with sending(agent):
            agent.offer("a")
            assert asked.wait(PATIENCE)
            threading.Timer(0.1, answer.set).start()
        assert [one.leaving for one in receiver.applied] == [False, True]


def test_an_end_that_cannot_be_told_is_no_reason_to_stay(tmp_path: Path) -> None:
    agent = Agent(tmp_path, [f"http://127.0.0.1:{closed_port()}/"])
    with sending(agent):
        agent.offer("a")
        until(lambda: agent.said)
        began = time.monotonic()
    assert time.monotonic() - began < PROMPTLY
    assert len(agent.spool) == 1


def test_sending_imports_nothing_but_the_standard_library_and_what_is_here_anyway() -> None:
    code = (
        "import sys, nodeguard.agent.reporting.senders; "
        "print(sorted({'aiohttp', 'kubernetes', 'pydantic', 'requests', 'urllib3', 'httpx', 'asyncio'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said == "[]\n"


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
