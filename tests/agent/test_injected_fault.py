"""The finding of an injected fault."""

from __future__ import annotations

import pytest

from nodeguard.agent.injected_fault import InjectionError, injected_finding, require_option, require_policy
from nodeguard.agent.reporting.sender import InjectionReply
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


def replied(aggregator: str, *patterns: str, at: float = 1000.0) -> InjectionReply:
    return InjectionReply(aggregator, patterns, at)


def refusal(replies: list[InjectionReply]) -> str:
    """Return why the replies of aggregators do not allow a fault of gpu-lost; empty if they allow it."""
    try:
        require_policy("gpu-lost", replies, 1000.0)
    except InjectionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "replies",
    [
        [replied("a", "gpu-*", at=880.0)],
        [replied("a", "port-*", "gpu-*"), replied("b", "gpu-lost")],
        [replied("a", "*"), replied("b", at=879.9), InjectionReply("c")],
    ],
)
def test_a_fault_is_allowed_if_every_aggregator_that_answers_allows_it(replies: list[InjectionReply]) -> None:
    assert refusal(replies) == ""


NO_ANSWER = (
    "the policy of the aggregator decides, and no aggregator has answered within 120 s: nodeguard status --agent "
    "shows the last acknowledgements"
)
NO_FAULTS = (
    "the policy allows no injected faults: set injection.allowed: true in the policy of b, and wait until it has "
    "read the change"
)
NOT_THIS = (
    "the policy allows no injected fault of gpu-lost, only of port-*, fan-*: add it to injection.checks in the "
    "policy of b, and wait until it has read the change"
)


@pytest.mark.parametrize(
    ("replies", "message"),
    [
        ([], NO_ANSWER),
        ([replied("a", "*", at=879.9), InjectionReply("b")], NO_ANSWER),
        ([replied("b")], NO_FAULTS),
        ([replied("a", "*"), replied("b")], NO_FAULTS),
        ([replied("a", "*"), replied("b", "port-*", "fan-*")], NOT_THIS),
    ],
)
def test_a_refusal_has_its_reason_and_remedy(replies: list[InjectionReply], message: str) -> None:
    assert refusal(replies) == message


def test_without_an_aggregator_the_options_decide() -> None:
    require_option(allowed=True)
    with pytest.raises(InjectionError, match="this agent allows no injected faults: set allow_injection"):
        require_option(allowed=False)


def test_values_have_their_units() -> None:
    finding = injected("gpu-memory-hot", "gpu/0000:1b:00", {"gpu.memory.temperature": 96})
    assert finding.message == "GPU 0000:1b:00 has its memory at 96 °C, at or above its limit"


def test_the_title_is_the_message_where_a_value_is_not_read() -> None:
    finding = injected("gpu-xid-fatal", "gpu/0000:1b:00", {})
    assert finding.message == "Xid of a GPU that failed"
    remedy = "Stop the work on the GPU, then reset the GPU; see `nodeguard explain xid XID`."
    assert finding.remedy == remedy


def test_no_text_of_any_check_has_an_unknown_value() -> None:
    for check in CATALOGUE.checks:
        finding = injected(check.id, "node", {})
        assert "?" not in finding.message + finding.remedy, check.id
