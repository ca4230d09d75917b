from __future__ import annotations

import socket

import pytest

from nodeguard.agent.reporting.endpoint import Place, asked, parse_address, places, unnamed, wanted

V4, V6 = socket.AF_INET, socket.AF_INET6
A, B, C, D, E = (("10.0.0.1",), ("10.0.0.2",), ("10.0.0.3",), ("10.0.0.4",), ("10.0.0.5",))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([], ()),
        ([(V4, "10.0.0.1")], (A,)),
        ([(V4, "10.0.0.2"), (V4, "10.0.0.1"), (V4, "10.0.0.2")], (B, A)),
        ([(V6, "fd00::1"), (V4, "10.0.0.1")], (("fd00::1", "10.0.0.1"),)),
        ([(V6, "fd00::1"), (V6, "fd00::2"), (V4, "10.0.0.1"), (V4, "10.0.0.2")], (("fd00::1",), ("fd00::2",))),
        ([(V4, "10.0.0.1"), (V6, "fd00::1"), (V6, "fd00::2")], (A,)),
    ],
)  # fmt: skip
def test_each_receiver_has_one_place(found: list[tuple[int, str]], expected: tuple[Place, ...]) -> None:
    assert places(found) == expected


@pytest.mark.parametrize(
    ("named", "had", "expected"),
    [
        ((A, B), {}, (A, B)),
        ((A, B), {A: True}, (A, B)),
        ((B, A), {A: False}, (A, B)),
        ((), {A: True, B: False}, (A, B)),
        ((), {}, ()),
        ((C,), {A: False, B: True}, (C, B)),
        ((A, B, C, D, E), {E: False}, (E, A, B, C)),
        ((C, D, E), {A: True, B: True}, (C, D, E, A)),
        ((A, B), {("fd00::1", "10.0.0.1"): True}, (A, B)),
    ],
)
def test_who_is_named_is_told_and_who_hears_is_not_left(
    named: tuple[Place, ...], had: dict[Place, bool], expected: tuple[Place, ...]
) -> None:
    assert wanted(named, had) == expected


def test_the_name_service_is_asked_for_real() -> None:
    address = parse_address("https://localhost:8443/")
    assert "127.0.0.1" in {number for place in asked(address) for number in place}
    for nobody in ("https://no-such-name.invalid/", f"https://{'x' * 70}.invalid/", "https://a..b/"):
        with pytest.raises((OSError, ValueError)) as found:
            asked(parse_address(nobody))
        assert isinstance(found.value, (OSError, ValueError))
        assert unnamed(found.value).startswith("its name is not found (")
