"""Tests for nodeguard.aggregator.policy.policy_file: the diagnosis."""

from __future__ import annotations

import pytest

from nodeguard.aggregator.policy import policy_file
from nodeguard.config.amounts import decode_amounts
from nodeguard.config.errors import ConfigError
from nodeguard.config.yaml_document import convert, parse_yaml
from nodeguard.model.diagnosis import (
    DiagnosisPolicy,
    DiagnosisSettings,
    RecoveryPolicy,
    SuppressionPolicy,
    WeakEvidence,
)
from tests.policies import FAULT_CLASSES, diagnosis_policy


def settings(text: str) -> DiagnosisPolicy:
    document = parse_yaml((text or "{}").encode(), "policy.yaml")
    settings = convert(document, DiagnosisSettings, decode=decode_amounts)
    return policy_file.diagnosis_policy(settings, FAULT_CLASSES)


def test_missing_fields_have_the_defaults() -> None:
    assert settings("") == diagnosis_policy()


def test_every_constant_can_be_set() -> None:
    assert settings("""
        enforce: [fabric, rack, fabric]
        minNodes: 4
        significance: 0.0000454
        rateMargin: 2
        gracePeriod: 30s
        maxDailyOnsets: 5
        weakEvidence: {share: 20%, wait: 5m}
        recovery: {initial: 10m, max: 1h, resetAfter: 2d}
        suppression: {minNodes: 8, usualDailyOnsets: 4, significance: 0.001, windows: [5m, 1h], confirmedShare: 50%}
        faultClasses: {}
        """) == diagnosis_policy(
        enforce=("fabric", "rack"),
        min_nodes=4,
        significance=0.0000454,
        rate_margin=2.0,
        grace_period=30.0,
        max_daily_onsets=5,
        weak_evidence=WeakEvidence(share=0.2, wait=300.0),
        recovery=RecoveryPolicy(initial=600.0, max=3_600.0, reset_after=172_800.0),
        suppression=SuppressionPolicy(8, 4.0, 0.001, (300.0, 3_600.0), 0.5),
    )


def test_the_exponent_of_the_significance() -> None:
    assert settings("significance: 0.0000454").significance_exponent == 10.0
    assert settings("").significance_exponent == 13.8


def test_a_fault_class_keeps_the_defaults_of_missing_fields() -> None:
    [link] = [
        fault_class
        for fault_class in settings("faultClasses: {link: {share: 50%, windows: [1m]}}").classes
        if fault_class.name == "link"
    ]
    [before] = [fault_class for fault_class in FAULT_CLASSES if fault_class.name == "link"]
    assert (link.share, link.windows) == (0.5, (60.0,))
    assert (link.checks, link.topologies, link.daily_rate, link.weak) == (
        before.checks, before.topologies, before.daily_rate, before.weak
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "enforce: [driver]",
        "minNodes: 1",
        "suppression: {significance: 1}",
        "faultClasses: {link: {dailyRate: 1.0e-320}}",
    ],
)
def test_invalid_values_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        settings(text)
