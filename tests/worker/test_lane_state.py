from __future__ import annotations

from nodeguard.worker.lane_state import LaneState
from nodeguard.worker.result import SYSTEM, CallResult, LaneResult

_VERSION, _COUNT = "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount"


def _system(version: str = "580.1", count: int = 2) -> list[CallResult]:
    return [CallResult(SYSTEM, _VERSION, version), CallResult(SYSTEM, _COUNT, count)]


def _stalled(memory: LaneState, scope: int = 1) -> None:
    played = memory.begin()
    assert played.stall(_system(), CallResult(scope, "nvmlDeviceGetName"))
    played.end()


def test_the_next_run_skips_stalled_and_read_scopes() -> None:
    played = LaneState().begin()
    assert played.skip() == frozenset()
    name = CallResult(0, "nvmlDeviceGetName", "a")
    assert played.stall([*_system(), name], CallResult(1, "nvmlDeviceGetName"))
    assert played.skip() == {SYSTEM, 0, 1}
    other = CallResult(2, "nvmlDeviceGetName", "c")
    answer = played.end([CallResult(SYSTEM, _COUNT, 2), other])
    assert answer == LaneResult((*_system(), name, other), (CallResult(1, "nvmlDeviceGetName"),))


def test_stalled_scopes_are_skipped_until_their_stalls_end() -> None:
    memory = LaneState()
    _stalled(memory, 1)
    _stalled(memory, 3)
    skipped = memory.begin().end(_system()).skipped
    assert skipped == (CallResult(1, "nvmlDeviceGetName"), CallResult(3, "nvmlDeviceGetName"))
    assert memory.begin().skip() == {1, 3}
    memory.end_stalls()
    assert memory.begin().skip() == frozenset()


def test_changed_system_result_ends_the_stalls() -> None:
    for changed in (_system("590.1"), _system(count=1), [CallResult(SYSTEM, "nvmlInit", {"error": "X"})]):
        memory = LaneState()
        _stalled(memory)
        memory.begin().end(changed)
        assert memory.begin().skip() == frozenset()


def test_stall_continues_without_system_results() -> None:
    memory = LaneState()
    _stalled(memory)
    for entries in ([], _system("590.1")[:1]):
        played = memory.begin()
        assert not played.stall(entries, CallResult(SYSTEM, "nvmlSystemGetConfComputeState"))
        played.end()
        assert memory.begin().skip() == {1}


def test_system_scope_is_never_skipped() -> None:
    memory = LaneState()
    played = memory.begin()
    assert not played.stall([], CallResult(SYSTEM, "nvmlInit"))
    assert played.end() == LaneResult((), (CallResult(SYSTEM, "nvmlInit"),))
    assert memory.begin().skip() == frozenset()


def test_a_hang_lasts_for_the_boot() -> None:
    memory = LaneState()
    played = memory.begin()
    played.stall(_system(), CallResult(0, "nvmlDeviceGetName"))
    hung = CallResult(1, "nvmlDeviceGetUUID")
    answer = played.hang([CallResult(1, "nvmlDeviceGetName", "b")], hung)
    assert answer.results[-1] == CallResult(1, "nvmlDeviceGetName", "b")
    assert (answer.stalled, answer.hung) == ((CallResult(0, "nvmlDeviceGetName"),), hung)
    memory.end_stalls()
    assert memory.hung() == hung


def test_mount_is_skipped_by_its_path() -> None:
    memory = LaneState()
    played = memory.begin(("/", "/nfs"))
    assert played.stall([CallResult(0, "statvfs(/)", {})], CallResult(1, "statvfs(/nfs)"))
    assert played.skip() == {0, 1}
    played.end()
    later = memory.begin(("/nfs", "/", "/data"))
    assert later.skip() == {0}
    assert later.end().skipped == (CallResult(0, "statvfs(/nfs)"),)
    assert memory.begin(("/",)).skip() == frozenset()
    assert memory.begin(("/", "/nfs")).skip() == frozenset(), "it was mounted again"


def test_a_hung_mount_has_its_present_index() -> None:
    memory = LaneState()
    memory.begin(("/", "/nfs")).hang([], CallResult(1, "statvfs(/nfs)"))
    assert memory.hung(("/nfs", "/")) == CallResult(0, "statvfs(/nfs)")
    assert memory.hung(("/",)) == CallResult(SYSTEM, "statvfs(/nfs)")
