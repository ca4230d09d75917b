from __future__ import annotations

from nodeguard.kube.error_log import WriteErrorLog
from nodeguard.kube.errors import ApiError

DOWN = ApiError(0, "Unreachable", "the Kubernetes API could not be reached")
FORBIDDEN = ApiError(403, "Forbidden", "no right to do so")


def test_each_kind_is_told_once_until_the_last_of_it_is_over() -> None:
    messages: list[str] = []
    failures = WriteErrorLog(messages.append)
    failures.failed("a", DOWN)
    failures.failed("b", DOWN)
    failures.failed("a", DOWN)
    failures.failed("c", FORBIDDEN)
    assert messages == ["Writes: the Kubernetes API could not be reached", "Writes: no right to do so"]
    failures.finished("a")
    failures.finished("never failed")
    assert len(messages) == 2
    failures.finished("b")
    failures.finished("c")
    assert messages[2:] == [
        "Writes: no write fails with no response (Unreachable) any more",
        "Writes: no write fails with 403 (Forbidden) any more",
    ]
    failures.failed("a", DOWN)
    assert messages[4:] == ["Writes: the Kubernetes API could not be reached"]


def test_what_fails_in_another_way_now_no_longer_fails_in_the_first() -> None:
    messages: list[str] = []
    failures = WriteErrorLog(messages.append)
    failures.failed("a", DOWN)
    failures.failed("a", FORBIDDEN)
    failures.finished("a")
    failures.failed("b", DOWN)
    assert messages == [
        "Writes: the Kubernetes API could not be reached",
        "Writes: no write fails with no response (Unreachable) any more",
        "Writes: no right to do so",
        "Writes: no write fails with 403 (Forbidden) any more",
        "Writes: the Kubernetes API could not be reached",
    ]
