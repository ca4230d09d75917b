from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.wire.report import VERSION, Heartbeat, Message
from nodeguard.wire.report_builder import build_report
from nodeguard.wire.sequence import Acceptance, SequenceState, accept_message
from tests.wire.scene import FACTS, NOW, verdict

REPORT = build_report(verdict(), NOW, FACTS)
ACCEPTED, REPEATED = Acceptance.ACCEPTED, Acceptance.REPEATED
OTHER_BOOT, USED_SEQUENCE = Acceptance.OTHER_BOOT, Acceptance.USED_SEQUENCE

# The boot that a node really runs, and others that the owner of its credential can name.
TRUE, FORGED = "true", "abc"


def heartbeat(boot: str, sequence: int) -> Message:
    return Heartbeat(version=VERSION, node="n", boot_id=boot, sequence=sequence)


class Receiver:
    """A receiver of one node's messages."""

    def __init__(self) -> None:
        self.order = SequenceState()
        self.accepted: list[tuple[str, int]] = []

    def take(self, message: Message, now: float) -> Acceptance:
        self.order, acceptance = accept_message(self.order, message, now)
        if acceptance == ACCEPTED:
            self.accepted.append((message.boot_id, message.sequence))
        return acceptance

    def beat(self, boot: str, sequence: int, now: float) -> Acceptance:
        return self.take(heartbeat(boot, sequence), now)


# A message of any boot that comes some seconds after the one before it.
anything = st.tuples(
    st.sampled_from([TRUE, *FORGED]), st.integers(0, 2**53), st.floats(0.0, 40.0), st.booleans()
)


def arbitrary(receiver: Receiver, history: list[tuple[str, int, float, bool]]) -> float:
    """Deliver arbitrary messages. Return the time of the last."""
    now = 0.0
    for boot, sequence, pause, leaving in history:
        now += pause
        receiver.take(replace(REPORT, boot_id=boot, sequence=sequence, leaving=leaving), now)
    return now


@given(st.lists(anything, max_size=30), st.integers(0, 2**53 - 100), st.floats(5.0, 10.0))
def test_a_boot_that_continues_to_report_is_accepted_within_a_minute(
    history: list[tuple[str, int, float, bool]], first: int, gap: float
) -> None:
    receiver = Receiver()
    begin = arbitrary(receiver, history)
    results = {}
    for step in range(int(60.0 / gap) + 1):
        results[step * gap] = receiver.beat(TRUE, first + step, begin + step * gap)
    assert receiver.order.boot_id == TRUE
    accepted = [at for at, result in results.items() if result in {ACCEPTED, REPEATED}]
    assert accepted == [at for at in results if at >= accepted[0]]


@given(
    st.lists(st.floats(0.1, 10.0), min_size=1, max_size=20),
    st.lists(st.tuples(st.integers(0, 19), st.sampled_from([*FORGED, TRUE]), st.integers(0, 2**53)), max_size=40),
)  # fmt: skip
def test_while_the_accepted_boot_reports_no_other_message_is_accepted(
    gaps: list[float], others: list[tuple[int, str, int]]
) -> None:
    receiver, now = Receiver(), 0.0
    for number, gap in enumerate(gaps):
        now += gap
        sequence = 1000 + number
        assert receiver.beat(TRUE, sequence, now) == ACCEPTED
        for _, boot, other in filter(lambda item: item[0] == number, others):
            if boot != TRUE or other < sequence:
                assert receiver.beat(boot, other, now + gap / 2).is_refusal
    assert receiver.accepted == [(TRUE, 1000 + number) for number in range(len(gaps))]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.floats(1.0, 60.0)), min_size=1, max_size=20),
    st.lists(st.tuples(st.integers(0, 100), st.floats(0.0, 2.0)), max_size=14),
)
def test_repeated_old_messages_change_nothing(
    lives: list[tuple[str, float]], again: list[tuple[int, float]]
) -> None:
    receiver, now, sent = Receiver(), 0.0, list[tuple[str, int]]()
    for number, (boot, pause) in enumerate(lives):
        now += pause
        if receiver.beat(boot, number, now) == ACCEPTED:
            sent.append((boot, number))
    before = receiver.order
    for which, pause in again:
        now += pause
        assert receiver.beat(*sent[which % len(sent)], now) != ACCEPTED
    assert replace(receiver.order, contender=before.contender) == before
    assert receiver.accepted == sent


@given(st.lists(anything, max_size=60))
def test_sequences_of_a_boot_rise_unless_it_repeats_used_ones_for_long(
    history: list[tuple[str, int, float, bool]],
) -> None:
    receiver, now, highest, latest = Receiver(), 0.0, dict[str, int](), 0.0
    for boot, sequence, pause, leaving in history:
        now += pause
        message = replace(REPORT, boot_id=boot, sequence=sequence, leaving=leaving)
        if receiver.take(message, now) == ACCEPTED:
            assert sequence > highest.get(boot, -1) or now - latest >= 30.0
            highest[boot], latest = sequence, now


def test_a_reboot_is_accepted_at_once_if_the_agent_ended_and_else_later() -> None:
    receiver = Receiver()
    receiver.beat("a", 1, 0.0)
    assert receiver.beat("b", 1, 29.0) == OTHER_BOOT
    assert receiver.beat("b", 2, 30.0) == ACCEPTED
    assert receiver.take(replace(REPORT, boot_id="b", sequence=3, leaving=True), 31.0) == ACCEPTED
    assert receiver.beat("c", 1, 31.0) == ACCEPTED


def test_a_spooled_report_of_the_old_boot_does_not_block_the_new_boot() -> None:
    receiver = Receiver()
    assert receiver.take(replace(REPORT, boot_id="a", sequence=5, age=300.0), 1000.0) == ACCEPTED
    assert receiver.beat("b", 1, 1000.1) == ACCEPTED
    assert receiver.take(replace(REPORT, boot_id="a", sequence=6, age=301.0), 1040.0) == OTHER_BOOT


def test_a_single_message_of_a_forged_boot_is_replaced_soon() -> None:
    receiver = Receiver()
    receiver.beat(TRUE, 1, 0.0)
    assert receiver.beat("forged", 1, 40.0) == ACCEPTED
    assert receiver.beat(TRUE, 2, 41.0) == OTHER_BOOT
    assert receiver.beat(TRUE, 3, 55.0) == ACCEPTED
    assert receiver.beat("forged", 2, 56.0) == OTHER_BOOT


def test_a_forged_highest_number_does_not_block_its_boot() -> None:
    receiver = Receiver()
    receiver.beat(TRUE, 2**53, 0.0)
    results = [receiver.beat(TRUE, number, 10.0 * number) for number in range(1, 6)]
    assert results == [USED_SEQUENCE] * 3 + [ACCEPTED] * 2


def test_a_replay_from_the_start_is_accepted_after_a_while() -> None:
    receiver = Receiver()
    for number in range(10):
        assert receiver.beat("recorded", number, 10.0 * number) == ACCEPTED
    results = [receiver.beat("recorded", number, 100.0 + 10.0 * number) for number in range(5)]
    assert results == [USED_SEQUENCE] * 3 + [ACCEPTED] * 2


def test_a_repetition_of_the_latest_message_is_recognized() -> None:
    receiver = Receiver()
    assert [receiver.beat("a", number, 0.0) for number in (1, 1, 2, 2)] == [ACCEPTED, REPEATED] * 2


def test_the_number_of_stored_boots_is_limited() -> None:
    receiver = Receiver()
    for number in range(100):
        receiver.beat(f"{number}", 1, 100.0 * number)
    assert [boot for boot, _ in receiver.order.previous_boots] == [f"{number}" for number in range(91, 99)]
