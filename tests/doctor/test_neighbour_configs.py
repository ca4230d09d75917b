"""Policies of descheduler and configurations of node-problem-detector."""

from __future__ import annotations

import pytest

from nodeguard.doctor.neighbour_configs import monitor_conflicts, parse_eviction_policy

KEY = "nodeguard.dev/quarantine"
POLICY = """
apiVersion: "descheduler/v1alpha2"
kind: "DeschedulerPolicy"
profiles:
- name: other
- name: default
  pluginConfig:
  - name: DefaultEvictor
    args: {{podProtections: {{defaultDisabled: [PodsWithLocalStorage]}}}}
  - name: RemovePodsViolatingNodeTaints
    args: {args}
  plugins:
    balance: {{enabled: [RemoveDuplicates]}}
    deschedule:
      enabled: {enabled}
"""
ENABLED = "[RemovePodsViolatingNodeAffinity, RemovePodsViolatingNodeTaints]"


@pytest.mark.parametrize(
    ("args", "enabled", "expected"),
    [
        ("", ENABLED, True),
        ("{}", ENABLED, True),
        ("{excludedTaints: [nodeguard.dev/quarantine]}", ENABLED, False),
        ("{excludedTaints: [nodeguard.dev/suspect]}", ENABLED, True),
        # Prefixes do not match, and a value excludes only itself.
        ("{excludedTaints: [nodeguard.dev/]}", ENABLED, True),
        ("{excludedTaints: ['nodeguard.dev/quarantine=gpu']}", ENABLED, True),
        ("{includedTaints: [example.com/maintenance]}", ENABLED, False),
        ("{includedTaints: [nodeguard.dev/quarantine]}", ENABLED, True),
        ("{includedTaints: ['nodeguard.dev/quarantine=gpu']}", ENABLED, True),
        (
            "{includedTaints: [nodeguard.dev/quarantine], excludedTaints: [nodeguard.dev/quarantine]}",
            ENABLED,
            False,
        ),
        # A plugin that no profile enables does nothing.
        ("", "[RemovePodsViolatingNodeAffinity]", False),
        ("", "", False),
    ],
)
def test_taints_that_evict_pods(args: str, enabled: str, expected: bool) -> None:
    policy = parse_eviction_policy(POLICY.format(args=args, enabled=enabled))
    assert policy is not None
    assert policy.evicts(KEY) is expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: *b",
        "profiles: 5",
        POLICY.format(args="[]", enabled=ENABLED),
        "a: " + "[" * 500,
        "a" * (2 << 20),
    ],
)
def test_a_policy_that_cannot_be_read_is_no_finding(text: str) -> None:
    assert parse_eviction_policy(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("[" * 100_000, 0),
        ('{"rules": [{"path": "./check_ntp.sh"}], "conditions": [{"type": "NTPProblem"}]}', 0),
        ('{"rules": [{"path": "/opt/map-exit-codes-of-nodeguard"}]}', 0),
        ('{"rules": [{"path": "nodeguard", "args": ["check"]}]}', 1),
        ('{"rules": [{"path": "/usr/bin/nodeguard"}], "conditions": [{"type": "NodeguardHealthy"}]}', 2),
    ],
)
def test_conflicts_of_node_problem_detector(text: str, expected: int) -> None:
    assert len(list(monitor_conflicts(text))) == expected
