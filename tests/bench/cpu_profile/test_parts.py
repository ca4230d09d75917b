import inspect
import sys
from collections import Counter
from types import FrameType

import pytest

from bench.cpu_profile import sampler
from bench.cpu_profile.parts import LOOP, OTHER, count_parts, part

LOOP_STACK = "/n/nodeguard/cli/main.py:main;/p/asyncio/runners.py:run"
INGEST = f"{LOOP_STACK};/n/nodeguard/aggregator/ingest/endpoint.py:_reply"
REPORT = f"{INGEST};/n/nodeguard/aggregator/report_handler.py:__call__"


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        (LOOP_STACK, LOOP),
        ("/n/nodeguard/cli/main.py:main", OTHER),
        (INGEST, "HTTP, limits"),
        (f"{INGEST};/n/nodeguard/local/rate_limiter.py:take", "HTTP, limits"),
        (f"{LOOP_STACK};/p/asyncio/sslproto.py:_do_read;/p/ssl.py:read", "TLS"),
        (f"{LOOP_STACK};/p/asyncio/sslproto.py:_process_outgoing", "writes to sockets"),
        (REPORT, "messages"),
        (f"{REPORT};/n/nodeguard/fleet/planner.py:record_report", "messages"),
        (f"{LOOP_STACK};/n/nodeguard/aggregator/service.py:turn;/n/nodeguard/fleet/planner.py:plan", "plans"),
        (
            f"{LOOP_STACK};/n/nodeguard/kube/watch.py:_handle_line;/p/json/decoder.py:decode",
            "watches, writes",
        ),
    ],
)
def test_the_innermost_function_with_a_part_decides(stack: str, expected: str) -> None:
    assert part(stack) == expected


def test_samples_are_counted_by_part() -> None:
    assert count_parts([f"{INGEST} 3\n", f"{LOOP_STACK} 2\n", f"{INGEST} 1\n"]) == {
        "HTTP, limits": 4,
        LOOP: 2,
    }


def test_a_sample_in_a_function_is_of_its_whole_stack() -> None:
    stacks: Counter[str] = Counter()

    def inner() -> None:
        sampler.sample(stacks, inspect.currentframe())

    inner()

    [stack] = stacks
    assert stack.endswith("test_parts.py:inner")
    assert "test_parts.py:test_a_sample_in_a_function_is_of_its_whole_stack;" in stack


def test_a_sample_before_the_first_step_of_a_function_is_of_its_caller() -> None:
    stacks: Counter[str] = Counter()

    def called() -> None:
        pass

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            sampler.sample(stacks, frame)

    sys.setprofile(profile)
    try:
        called()
    finally:
        sys.setprofile(None)

    [stack] = stacks
    assert stack.endswith("test_a_sample_before_the_first_step_of_a_function_is_of_its_caller")
