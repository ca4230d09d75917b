"""The finding of an injected fault."""

from __future__ import annotations

from nodeguard.agent.injected_fault import injected_finding
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
