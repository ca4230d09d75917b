from __future__ import annotations

from nodeguard.worker.answer import SYSTEM, Answer, Entry
from nodeguard.worker.memory import Memory

_VERSION, _COUNT = "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount"


def _system(version: str = "580.1", count: int = 2) -> list[Entry]:
    return [Entry(SYSTEM, _VERSION, version), Entry(SYSTEM, _COUNT, count)]


def _stalled(memory: Memory, scope: int = 1) -> None:
    played = memory.begin()
    assert played.stall(_system(), Entry(scope, "nvmlDeviceGetName"))
    played.end()


def test_the_next_run_leaves_alone_what_stalled_and_what_was_read() -> None:
    played = Memory().begin()
    assert played.skip() == frozenset()
    name = Entry(0, "nvmlDeviceGetName", "a")
    assert played.stall([*_system(), name], Entry(1, "nvmlDeviceGetName"))
    assert played.skip() == {SYSTEM, 0, 1}
    other = Entry(2, "nvmlDeviceGetName", "c")
    answer = played.end([Entry(SYSTEM, _COUNT, 2), other])
    assert answer == Answer((*_system(), name, other), (Entry(1, "nvmlDeviceGetName"),))


def test_rest_lasts_over_rounds_until_it_is_ended() -> None:
    memory = Memory()
    _stalled(memory, 1)
    _stalled(memory, 3)
    resting = memory.begin().end(_system()).resting
    assert resting == (Entry(1, "nvmlDeviceGetName"), Entry(3, "nvmlDeviceGetName"))
    assert memory.begin().skip() == {1, 3}
    memory.wake(1)
    assert memory.begin().skip() == {3}
    memory.wake(7)
    memory.wake()
    assert memory.begin().skip() == frozenset()


def test_rest_ends_when_the_world_changed() -> None:
    for changed in (_system("590.1"), _system(count=1), [Entry(SYSTEM, "nvmlInit", {"error": "X"})]):
        memory = Memory()
        _stalled(memory)
        memory.begin().end(changed)
        assert memory.begin().skip() == frozenset()


def test_a_system_that_was_not_read_says_nothing_of_the_world() -> None:
    memory = Memory()
    _stalled(memory)
    for entries in ([], _system("590.1")[:1]):
        played = memory.begin()
        assert not played.stall(entries, Entry(SYSTEM, "nvmlSystemGetConfComputeState"))
        played.end()
        assert memory.begin().skip() == {1}


def test_the_system_does_not_rest() -> None:
    memory = Memory()
    played = memory.begin()
    assert not played.stall([], Entry(SYSTEM, "nvmlInit"))
    assert played.end() == Answer((), (Entry(SYSTEM, "nvmlInit"),))
    assert memory.begin().skip() == frozenset()


def test_a_hang_is_for_good() -> None:
    memory = Memory()
    played = memory.begin()
    played.stall(_system(), Entry(0, "nvmlDeviceGetName"))
    hung = Entry(1, "nvmlDeviceGetUUID")
    answer = played.hang([Entry(1, "nvmlDeviceGetName", "b")], hung)
    assert answer.entries[-1] == Entry(1, "nvmlDeviceGetName", "b")
    assert (answer.stalled, answer.hung) == ((Entry(0, "nvmlDeviceGetName"),), hung)
    memory.wake()
    assert memory.hung() == hung


def test_mounts_rest_by_their_path() -> None:
    memory = Memory()
    played = memory.begin(("/", "/nfs"))
    assert played.stall([Entry(0, "statvfs(/)", {})], Entry(1, "statvfs(/nfs)"))
    assert played.skip() == {0, 1}
    played.end()
    later = memory.begin(("/nfs", "/", "/data"))
    assert later.skip() == {0}
    assert later.end().resting == (Entry(0, "statvfs(/nfs)"),)
    assert memory.begin(("/",)).skip() == frozenset()
    assert memory.begin(("/", "/nfs")).skip() == frozenset(), "it was mounted anew"


def test_mounts_wake_by_their_path() -> None:
    memory = Memory()
    memory.begin(("/nfs",)).stall([], Entry(0, "statvfs(/nfs)"))
    memory.wake("/nfs")
    assert memory.begin(("/nfs",)).skip() == frozenset()


def test_a_hanging_mount_is_told_as_the_mounts_now_count() -> None:
    memory = Memory()
    memory.begin(("/", "/nfs")).hang([], Entry(1, "statvfs(/nfs)"))
    assert memory.hung(("/nfs", "/")) == Entry(0, "statvfs(/nfs)")
    assert memory.hung(("/",)) == Entry(SYSTEM, "statvfs(/nfs)")
