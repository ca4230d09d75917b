"""Lines come out whole however their pieces fall."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.kube.client import LineSplitter, LineTooLongError


@given(st.lists(st.binary(max_size=20)))
def test_the_pieces_do_not_matter(pieces: list[bytes]) -> None:
    lines = LineSplitter(1000)
    fed = [line for piece in pieces for line in lines.feed(piece)]
    assert fed == [line for line in b"".join(pieces).split(b"\n")[:-1] if line]


@pytest.mark.parametrize("pieces", [[b"12345", b"6"], [b"\n123456\n"]])
def test_a_line_that_is_too_long_is_refused(pieces: list[bytes]) -> None:
    lines = LineSplitter(5)
    with pytest.raises(LineTooLongError):
        _ = [line for piece in pieces for line in lines.feed(piece)]


def test_a_line_of_just_the_length_is_taken() -> None:
    assert list(LineSplitter(5).feed(b"12345\n")) == [b"12345"]
