from __future__ import annotations

from nodeguard.model.process_owner import ProcessOwner, owner_entry, parse_owner_entry


def test_an_entry_gives_its_process_and_owner_back() -> None:
    owner = ProcessOwner(1700.25, "0a", "1b", "2c")
    assert owner_entry(7, owner) == "7:1700.25:0a:1b:2c"
    assert parse_owner_entry(owner_entry(7, owner)) == (7, owner)


def test_an_entry_without_an_owner() -> None:
    assert owner_entry(7, None) == "7"
    assert parse_owner_entry("7") is None
