from __future__ import annotations

from nodeguard.kube.failures import Failures
from nodeguard.kube.refusal import ApiError

DOWN = ApiError(0, "Unreachable", "the Kubernetes API could not be asked")
FORBIDDEN = ApiError(403, "Forbidden", "no right to do so")


def test_each_kind_is_told_once_until_the_last_of_it_is_over() -> None:
    told: list[str] = []
    failures = Failures(told.append)
    failures.begun("a", DOWN)
    failures.begun("b", DOWN)
    failures.begun("a", DOWN)
    failures.begun("c", FORBIDDEN)
    assert told == ["Writes: the Kubernetes API could not be asked", "Writes: no right to do so"]
    failures.over("a")
    failures.over("never failed")
    assert len(told) == 2
    failures.over("b")
    failures.over("c")
    assert told[2:] == [
        "Writes: none fails any more with no answer (Unreachable)",
        "Writes: none fails any more with 403 (Forbidden)",
    ]
    failures.begun("a", DOWN)
    assert told[4:] == ["Writes: the Kubernetes API could not be asked"]


def test_what_fails_in_another_way_now_no_longer_fails_in_the_first() -> None:
    told: list[str] = []
    failures = Failures(told.append)
    failures.begun("a", DOWN)
    failures.begun("a", FORBIDDEN)
    failures.over("a")
    failures.begun("b", DOWN)
    assert told == [
        "Writes: the Kubernetes API could not be asked",
        "Writes: none fails any more with no answer (Unreachable)",
        "Writes: no right to do so",
        "Writes: none fails any more with 403 (Forbidden)",
        "Writes: the Kubernetes API could not be asked",
    ]
