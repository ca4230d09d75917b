"""Tests for nodeguard.wire.versions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodeguard.wire.report import Inventory, ReportedComponent
from nodeguard.wire.versions import REPORTED_SECONDS, VersionReceipts, version_domains

BEFORE = VersionReceipts(("driver/1", "vbios/a", "agent/1"))


def test_every_version_is_a_domain() -> None:
    parts = {
        "gpu/0": ReportedComponent(vbios="b"),
        "gpu/1": ReportedComponent(vbios="a"),
        "port/0": ReportedComponent(),
    }
    inventory = Inventory("580/beta", "6.8", components=parts)
    assert version_domains(inventory, "1.0", "") == (
        "driver/580_beta",
        "vbios/b",
        "vbios/a",
        "kernel/6.8",
        "agent/1.0",
    )


def test_a_version_that_replaces_another_was_received() -> None:
    after = BEFORE.update(("driver/2", "vbios/a", "agent/1"), 100.0)
    assert after == VersionReceipts(("driver/2", "vbios/a", "agent/1"), {"driver/2": 100.0})
    assert after.ages(160.0) == {"driver/2": 60.0}
    assert after.update(("driver/1", "vbios/a", "agent/1"), 200.0).received == {"driver/1": 200.0}


def test_the_first_version_that_is_read_was_not_received() -> None:
    assert BEFORE.update((*BEFORE.versions, "kernel/6.8"), 100.0).received == {}


def test_a_version_that_cannot_be_read_stays() -> None:
    without = BEFORE.update(("vbios/a", "agent/1"), 100.0)
    assert without.update(("driver/1", "vbios/a", "agent/1"), 200.0).received == {}
    assert without.update(("driver/2", "vbios/a", "agent/1"), 200.0).received == {"driver/2": 200.0}


def test_a_version_has_no_age_after_hours_or_before_its_time() -> None:
    after = BEFORE.update(("driver/2", "vbios/a", "agent/1"), 100.0)
    assert (after.ages(100.0 + REPORTED_SECONDS), after.ages(99.0)) == ({}, {})


@given(
    st.lists(
        st.lists(st.sampled_from(["driver/1", "driver/2", "vbios/a", "vbios/b", "agent/1"]), unique=True)
    )
)
def test_only_present_versions_have_a_receipt(readings: list[list[str]]) -> None:
    receipts = VersionReceipts()
    for at, versions in enumerate(readings):
        receipts = receipts.update(tuple(versions), float(at))
        assert set(versions) <= set(receipts.versions)
        assert receipts.received.keys() <= set(receipts.versions)
        assert len({*receipts.versions}) == len(receipts.versions)
