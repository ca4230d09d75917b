from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.worker.progress import Deadlines, RunPace

_DEADLINES = Deadlines(call=5.0, first=30.0, grace=4.0)


@pytest.mark.parametrize(
    ("pace", "now", "verdict"),
    [
        (RunPace("nvmlDeviceGetName", last_progress=100.0), 104.9, "waiting"),
        (RunPace("nvmlDeviceGetName", last_progress=100.0), 105.0, "overdue"),
        (RunPace("nvmlInit", last_progress=100.0), 129.9, "waiting"),
        (RunPace("nvmlDeviceGetHandleByIndex", last_progress=100.0), 130.0, "overdue"),
        (RunPace("start", last_progress=100.0), 129.9, "waiting"),
        (RunPace("nvmlDeviceGetName", last_progress=100.0, over=True), 200.0, "over"),
        (RunPace("nvmlDeviceGetName", last_progress=100.0, status=0), 100.0, "over"),
        (RunPace("nvmlDeviceGetName", last_progress=100.0, status=-11), 100.0, "died"),
        (RunPace("nvmlDeviceGetName", last_progress=100.0, killed=105.0), 108.9, "waiting"),
        (RunPace("nvmlDeviceGetName", last_progress=100.0, killed=105.0, status=-9), 108.9, "stalled"),
        (RunPace("nvmlDeviceGetName", last_progress=100.0, killed=105.0), 109.0, "hung"),
        (RunPace("nvmlDeviceGetName", last_progress=100.0, killed=105.0, over=True), 106.0, "waiting"),
    ],
)
def test_the_status_of_a_run(pace: RunPace, now: float, verdict: str) -> None:
    assert _DEADLINES.status(pace, now) == verdict


_paces = st.builds(
    RunPace,
    call=st.sampled_from(["nvmlInit", "statvfs(/)"]),
    last_progress=st.floats(0, 1000),
    killed=st.none() | st.floats(0, 1000),
)


@given(_paces, st.floats(0, 2000))
def test_checks_at_next_check_miss_no_deadline(pace: RunPace, now: float) -> None:
    look = _DEADLINES.next_check(pace, now)
    if _DEADLINES.status(pace, now) == "waiting":
        assert look > now or _DEADLINES.status(pace, look) != "waiting"
        just_before = max(now, look - 1e-3)
        assert _DEADLINES.status(pace, just_before) == "waiting" or just_before >= look - 1e-3


@given(_paces.filter(lambda pace: pace.killed is None), st.floats(0, 2000))
def test_progress_is_checked_five_times_within_a_deadline(pace: RunPace, now: float) -> None:
    assert _DEADLINES.next_check(pace, now) <= now + 1.0
