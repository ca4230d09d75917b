"""Tests for nodeguard.aggregator.policy.diagnosis."""

from __future__ import annotations

import msgspec
import pytest

from nodeguard.aggregator.policy.diagnosis import DiagnosisSpec, diagnosis_settings
from nodeguard.model.diagnosis import FAULT_CLASSES, DiagnosisPolicy


def said(text: str) -> DiagnosisPolicy:
    return diagnosis_settings(msgspec.yaml.decode(text, type=DiagnosisSpec) if text else DiagnosisSpec())


def test_what_is_not_said_is_as_it_is_built_in() -> None:
    assert said("") == DiagnosisPolicy()


def test_every_constant_can_be_set() -> None:
    assert said("""
        enforce: [fabric, rack, fabric]
        nodes: 4
        surprise: 10
        caution: 2
        settle: 30s
        repeats: 5
        weak: {share: 20%, patience: 5m, lately: 2m}
        clear: {first: 10m, most: 1h, forget: 2d}
        doubt: {nodes: 8, often: 4, chance: 0.001, windows: [5m, 1h], second: 50%}
        classes: {}
        """) == DiagnosisPolicy(
        enforce=("fabric", "rack"), nodes=4, surprise=10.0, caution=2.0, settle=30.0, weak=0.2, patience=300.0,
        lately=120.0, repeats=5, clear=600.0, most=3_600.0, forget=172_800.0, held=8, often=4.0, chance=0.001,
        windows=(300.0, 3_600.0), second=0.5,
    )  # fmt: skip


def test_a_class_keeps_what_is_not_said_of_it() -> None:
    [link] = [
        one for one in said("classes: {link: {share: 50%, windows: [1m]}}").classes if one.name == "link"
    ]
    [before] = [one for one in FAULT_CLASSES if one.name == "link"]
    assert (link.share, link.windows) == (0.5, (60.0,))
    assert (link.checks, link.topologies, link.rate, link.weak) == (
        before.checks, before.topologies, before.rate, before.weak
    )  # fmt: skip


@pytest.mark.parametrize(
    "text", ["enforce: [driver]", "nodes: 1", "classes: {other: {}}", "doubt: {chance: 1}"]
)
def test_what_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        said(text)
