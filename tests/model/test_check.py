from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.model.check import (
    AllOf,
    AnyOf,
    Check,
    Compare,
    Condition,
    EventOccurred,
    Increase,
    Reference,
    Sustained,
    leaves,
)
from nodeguard.model.finding import Action, Health

LOW = Compare("a.level", "below", 5)
ROSE = Increase("a.errors", 3.0, 3600.0)
HAPPENED = EventOccurred("a.happened", {"code": (1, 2)})

LEAVES = (
    st.builds(Compare, st.just("a.level"), st.sampled_from(["is", "below"]), st.integers(0, 5))
    | st.builds(Compare, st.just("a.level"), st.just("below"), st.none(), st.builds(Reference, st.just("peers"), st.just("x")))
    | st.just(ROSE)
    | st.just(HAPPENED)
)  # fmt: skip
CONDITIONS: st.SearchStrategy[Condition] = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(Sustained, inner, st.just(60.0))
        | st.lists(inner, min_size=1, max_size=3).map(lambda parts: AllOf(tuple(parts)))
        | st.lists(inner, min_size=1, max_size=3).map(lambda parts: AnyOf(tuple(parts)))
    ),
    max_leaves=6,
)


def made(when: Condition) -> Check:
    return Check("a", "A", "fam", ("gpu",), Health.FATAL, Action.MONITOR, when, "m", "r", "e", "b")


def test_leaves_come_from_left_to_right() -> None:
    whole = AllOf((LOW, Sustained(AnyOf((ROSE, Sustained(HAPPENED, 5.0))), 60.0), LOW))
    assert list(leaves(whole)) == [LOW, ROSE, HAPPENED, LOW]
    assert list(made(whole).leaves()) == list(leaves(whole))


@given(CONDITIONS)
def test_a_check_survives_its_compiled_form(when: Condition) -> None:
    check = made(when)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(check), type=Check)
    assert again == check
    assert list(again.leaves()) == list(check.leaves())
    assert list(check.leaves())
