from __future__ import annotations

import pytest

from nodeguard.judge import judge as bounds
from nodeguard.judge.state import ActiveFinding, RememberedEvent, SourceSnapshot, TargetState
from nodeguard.model.finding import Health
from tests.judge.scene import finding


def heard(last: float, health: Health | None = None) -> TargetState:
    """A slot that only the log tells of."""
    event = RememberedEvent("a.b", "kmsg", last, last, 1, "", {}, (last,))
    active = {"one": ActiveFinding(0.0, finding(health=health))} if health else {}
    return TargetState(first_seen=0.0, events={"x": event}, active=active)


def silent(lapsed: float) -> TargetState:
    """A slot that a source should have reached and did not."""
    return TargetState(first_seen=0.0, sources={"memory": SourceSnapshot({}, {"a.b": "why"}, "", lapsed)})


READ = TargetState(first_seen=0.0, sources={"memory": SourceSnapshot({"a.b": 1})})


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "_MAX_WITHOUT_SOURCE", 2)
    monkeypatch.setattr(bounds, "_MAX_UNREAD", 2)


def test_what_is_read_is_never_forgotten() -> None:
    slots = {f"fs:/{at}": READ for at in range(9)}
    assert bounds.limit_targets(slots) is slots


def test_of_what_is_only_heard_of_the_oldest_and_least_bad_goes_first() -> None:
    slots = {"old": heard(1.0), "bad": heard(0.0, Health.FATAL), "new": heard(3.0), "read": READ}
    assert set(bounds.limit_targets(slots)) == {"bad", "new", "read"}


def test_of_what_was_not_reached_the_longest_ago_goes_first() -> None:
    slots = {"a": silent(3.0), "b": silent(1.0), "c": silent(2.0), "d": heard(0.0)}
    assert set(bounds.limit_targets(slots)) == {"a", "c", "d"}
