"""The finding of an injected fault."""

from __future__ import annotations

import pytest

from nodeguard.agent.injected_fault import InjectionError, allowed_patterns, injected_finding
from nodeguard.agent.reporting.delivery_queue import InjectionReply
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.judge.rules import compile_rules
from nodeguard.model.finding import Finding
from nodeguard.model.observation import Observation
from nodeguard.model.signal import Scalar

CATALOGUE, SIGNALS = load_catalogue()
UNITS = compile_rules(CATALOGUE, SIGNALS).units


def injected(name: str, target: str, signals: dict[str, Scalar]) -> Finding:
    check = next(check for check in CATALOGUE.checks if check.id == name)
    observation = Observation("test", target, signals=signals)
    return injected_finding(check, target, [observation], UNITS, "uid 0", 0.0, 600.0)


@pytest.mark.parametrize(
    ("policy", "by_options", "patterns"),
    [
        (None, True, ("*",)),
        (InjectionReply(("gpu-*",), 880.0), False, ("gpu-*",)),
        (InjectionReply(("gpu-*", "port-*"), 1000.0), True, ("gpu-*", "port-*")),
    ],
)
def test_the_policy_decides_and_without_an_aggregator_the_options(
    policy: InjectionReply | None, by_options: bool, patterns: tuple[str, ...]
) -> None:
    assert allowed_patterns(policy, 1000.0, by_options=by_options) == patterns


@pytest.mark.parametrize(
    ("policy", "by_options", "message"),
    [
        (None, False, "this agent allows no injected faults: set allow_injection"),
        (InjectionReply(), True, "no aggregator has answered within 120 s: nodeguard status --agent shows"),
        (
            InjectionReply(("gpu-*",), 879.9),
            True,
            "no aggregator has answered within 120 s: nodeguard status --agent shows",
        ),
        (InjectionReply((), 1000.0), True, "the policy allows no injected faults: set injection.allowed"),
    ],
)
def test_a_refusal_has_its_reason_and_remedy(
    policy: InjectionReply | None, by_options: bool, message: str
) -> None:
    with pytest.raises(InjectionError, match=message):
        allowed_patterns(policy, 1000.0, by_options=by_options)


def test_values_have_their_units() -> None:
    finding = injected("gpu-memory-hot", "gpu/0000:1b:00", {"gpu.memory.temperature": 96})
    assert finding.message == "GPU 0000:1b:00 has its memory at 96 °C, at or above its limit"


def test_the_title_is_the_message_where_a_value_is_not_read() -> None:
    finding = injected("gpu-xid-fatal", "gpu/0000:1b:00", {})
    assert finding.message == "Xid that ends the GPU's service"
    remedy = "Take work off the GPU, then do what the action says; see `nodeguard explain xid XID`."
    assert finding.remedy == remedy


def test_no_text_of_any_check_has_an_unknown_value() -> None:
    for check in CATALOGUE.checks:
        finding = injected(check.id, "node", {})
        assert "?" not in finding.message + finding.remedy, check.id
