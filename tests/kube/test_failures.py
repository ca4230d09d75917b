from __future__ import annotations

from nodeguard.kube.error_log import WriteErrorLog
from nodeguard.kube.errors import ApiError

DOWN = ApiError(0, "Unreachable", "the Kubernetes API could not be asked")
FORBIDDEN = ApiError(403, "Forbidden", "no right to do so")


def test_each_kind_is_told_once_until_the_last_of_it_is_over() -> None:
    told: list[str] = []
    failures = WriteErrorLog(told.append)
    failures.failed("a", DOWN)
    failures.failed("b", DOWN)
    failures.failed("a", DOWN)
    failures.failed("c", FORBIDDEN)
    assert told == ["Writes: the Kubernetes API could not be asked", "Writes: no right to do so"]
    failures.finished("a")
    failures.finished("never failed")
    assert len(told) == 2
    failures.finished("b")
    failures.finished("c")
    assert told[2:] == [
        "Writes: none fails any more with no answer (Unreachable)",
        "Writes: none fails any more with 403 (Forbidden)",
    ]
    failures.failed("a", DOWN)
    assert told[4:] == ["Writes: the Kubernetes API could not be asked"]


def test_what_fails_in_another_way_now_no_longer_fails_in_the_first() -> None:
    told: list[str] = []
    failures = WriteErrorLog(told.append)
    failures.failed("a", DOWN)
    failures.failed("a", FORBIDDEN)
    failures.finished("a")
    failures.failed("b", DOWN)
    assert told == [
        "Writes: the Kubernetes API could not be asked",
        "Writes: none fails any more with no answer (Unreachable)",
        "Writes: no right to do so",
        "Writes: none fails any more with 403 (Forbidden)",
        "Writes: the Kubernetes API could not be asked",
    ]
