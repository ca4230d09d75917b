from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.worker.nvml_calls import IDENTITY_GROUP
from nodeguard.worker.progress import Deadlines, GarbledLogError, GroupResults, RunPace, RunProgress
from nodeguard.worker.result import SYSTEM, CallResult

_LINES = [
    [SYSTEM, "nvmlInit"],
    [SYSTEM, {"nvmlInit": None}],
    [0, "nvmlDeviceGetName"],
    [0, {"nvmlDeviceGetName": "NVIDIA é"}],
    [0, "nvmlDeviceGetFieldValues"],
    [
        0,
        {
            "nvmlDeviceGetFieldValues(1,0)": 5,
            "nvmlDeviceGetFieldValues(2,0)": {"error": "NVML_ERROR_NO_DATA"},
        },
    ],
    [1, "nvmlDeviceGetName"],
]
_LOG = b"".join(msgspec.json.encode(line) + b"\n" for line in _LINES)
_ENTRIES = [
    CallResult(0, "nvmlDeviceGetName", "NVIDIA é"),
    CallResult(0, "nvmlDeviceGetFieldValues(1,0)", 5),
    CallResult(0, "nvmlDeviceGetFieldValues(2,0)", {"error": "NVML_ERROR_NO_DATA"}),
]


def test_the_first_call_is_start() -> None:
    assert RunProgress().call == CallResult(SYSTEM, "start")


def test_results_and_call_in_progress() -> None:
    progress = RunProgress()
    progress.feed(_LOG)
    assert progress.results == _ENTRIES
    assert progress.call == CallResult(1, "nvmlDeviceGetName")


def test_equal_failures_and_names_of_calls_are_one_object() -> None:
    progress = RunProgress()
    for scope in (0, 1):
        progress.feed(msgspec.json.encode([scope, {"nvmlDeviceGetMigMode": {"error": "E"}}]) + b"\n")
    first, second = progress.results
    assert first.result == {"error": "E"}
    assert first.result is second.result
    assert first.call is second.call


@given(st.lists(st.integers(0, len(_LOG)), max_size=8))
def test_a_log_may_arrive_in_any_parts(cuts: list[int]) -> None:
    progress = RunProgress()
    edges = [0, *sorted(cuts), len(_LOG)]
    for start, end in pairwise(edges):
        progress.feed(_LOG[start:end])
    assert progress.results == _ENTRIES


@given(st.integers(0, len(_LOG)))
def test_a_truncated_last_line_is_valid(end: int) -> None:
    progress = RunProgress()
    progress.feed(_LOG[:end])
    assert progress.results == _ENTRIES[: len(progress.results)]


@pytest.mark.parametrize("line", [b"", b"{}", b"[0]", b"[0,3]", b'["0","x"]', b"\xff\x00", b'[0,"x"'])
def test_an_invalid_line_is_reported_with_its_number(line: bytes) -> None:
    with pytest.raises(GarbledLogError, match=r"^worker log, line 8: .* the worker is restarted$"):
        RunProgress().feed(_LOG + line + b"\n")


def test_missing_is_not_a_result() -> None:
    progress = RunProgress()
    progress.note([SYSTEM, {"nvmlInit": {"missing": "no library"}}])
    assert (progress.results, progress.missing) == ([], "no library")


def test_unchanged_groups_have_the_results_of_the_same_worker() -> None:
    groups: GroupResults = {}
    RunProgress(groups).feed(b'[0,{"nvmlDeviceGetUUID":"GPU-1","nvmlDeviceGetEccMode":[1,1]}]\n')
    later = RunProgress(groups)
    later.feed(f"[0,[{IDENTITY_GROUP},3]]\n[1,[{IDENTITY_GROUP}]]\n".encode())
    assert later.results == [CallResult(0, "nvmlDeviceGetUUID", "GPU-1")]


def test_a_repeated_result_is_that_of_the_last_time() -> None:
    groups: GroupResults = {}
    RunProgress(groups).feed(b'[0,"nvmlDeviceGetEccMode"]\n[0,{"nvmlDeviceGetEccMode":[1,1]}]\n')
    later = RunProgress(groups)
    later.feed(b'[0,"nvmlDeviceGetEccMode"]\n[0,null]\n')
    assert later.results == [CallResult(0, "nvmlDeviceGetEccMode", [1, 1])]


def test_a_repeated_result_needs_an_earlier_one() -> None:
    with pytest.raises(GarbledLogError, match="worker log, line 2"):
        RunProgress({}).feed(b'[0,"nvmlDeviceGetEccMode"]\n[0,null]\n')


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
