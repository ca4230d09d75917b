from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.worker.deadlines import Deadlines, Pace

_DEADLINES = Deadlines(call=5.0, first=30.0, grace=4.0)


@pytest.mark.parametrize(
    ("pace", "now", "verdict"),
    [
        (Pace("nvmlDeviceGetName", moved=100.0), 104.9, "waiting"),
        (Pace("nvmlDeviceGetName", moved=100.0), 105.0, "overdue"),
        (Pace("nvmlInit", moved=100.0), 129.9, "waiting"),
        (Pace("nvmlDeviceGetHandleByIndex", moved=100.0), 130.0, "overdue"),
        (Pace("start", moved=100.0), 129.9, "waiting"),
        (Pace("nvmlDeviceGetName", moved=100.0, over=True), 200.0, "over"),
        (Pace("nvmlDeviceGetName", moved=100.0, status=0), 100.0, "over"),
        (Pace("nvmlDeviceGetName", moved=100.0, status=-11), 100.0, "died"),
        (Pace("nvmlDeviceGetName", moved=100.0, killed=105.0), 108.9, "waiting"),
        (Pace("nvmlDeviceGetName", moved=100.0, killed=105.0, status=-9), 108.9, "stalled"),
        (Pace("nvmlDeviceGetName", moved=100.0, killed=105.0), 109.0, "hung"),
        (Pace("nvmlDeviceGetName", moved=100.0, killed=105.0, over=True), 106.0, "waiting"),
    ],
)
def test_what_has_become_of_a_round(pace: Pace, now: float, verdict: str) -> None:
    assert _DEADLINES.judge(pace, now) == verdict


_paces = st.builds(
    Pace,
    call=st.sampled_from(["nvmlInit", "statvfs(/)"]),
    moved=st.floats(0, 1000),
    killed=st.none() | st.floats(0, 1000),
)


@given(_paces, st.floats(0, 2000))
def test_whoever_looks_when_told_misses_no_deadline(pace: Pace, now: float) -> None:
    look = _DEADLINES.look(pace, now)
    if _DEADLINES.judge(pace, now) == "waiting":
        assert look > now or _DEADLINES.judge(pace, look) != "waiting"
        just_before = max(now, look - 1e-3)
        assert _DEADLINES.judge(pace, just_before) == "waiting" or just_before >= look - 1e-3


@given(_paces.filter(lambda pace: pace.killed is None), st.floats(0, 2000))
def test_progress_is_looked_for_five_times_within_a_deadline(pace: Pace, now: float) -> None:
    assert _DEADLINES.look(pace, now) <= now + 1.0
