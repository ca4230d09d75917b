from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodeguard.agent.reporting.spool import MOST_BYTES, MOST_ENTRIES, Spool, put, without


def filled(*sizes: int) -> Spool:
    spool = Spool()
    for size in sizes:
        spool = put(spool, bytes(size))
    return spool


def test_entries_leave_by_their_number_and_no_number_comes_again() -> None:
    spool = without(filled(1, 2, 3), 2)
    assert [entry.number for entry in put(spool, b"x").entries] == [1, 3, 4]
    assert spool.dropped == 0
    assert without(spool, 2) == spool
    assert without(spool, 3, heard=False).dropped == 1


def test_the_oldest_give_way() -> None:
    spool = filled(*[1] * (MOST_ENTRIES + 2))
    assert (len(spool), spool.entries[0].number, spool.dropped) == (MOST_ENTRIES, 3, 2)


def test_what_is_larger_than_the_bound_is_dropped_itself() -> None:
    spool = filled(10, MOST_BYTES + 1)
    assert (len(spool), spool.dropped) == (0, 2)


@given(st.lists(st.integers(0, MOST_BYTES // 3), max_size=2 * MOST_ENTRIES))
def test_never_over_the_bound_and_every_entry_is_there_or_counted(sizes: list[int]) -> None:
    spool = filled(*sizes)
    assert len(spool) <= MOST_ENTRIES
    assert sum(len(entry.data) for entry in spool.entries) <= MOST_BYTES
    assert len(spool) + spool.dropped == len(sizes)
    assert [len(entry.data) for entry in spool.entries] == sizes[spool.dropped :]
