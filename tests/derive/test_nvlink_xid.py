from __future__ import annotations

import pytest

from nodeguard.derive.nvlink_xid import Nvlink5Error, decode_nvlink5
from nodeguard.model.catalogue import Nvlink5Rule

# In the first layout a value of 0x21 in the low ten bits, in the second 0x1 in the low seven.
MASKS = {"v1": (0x3FF, 0x21), "v2": (0x7F, 0x01)}
OTHER = {"v1": (0x3FF, 0x42), "v2": (0x7F, 0x21)}


def rule(
    unit: str, *status: int, xid: int = 144, masks: dict[str, tuple[int, int]] = MASKS, action: str = "IGNORE"
) -> Nvlink5Rule:
    return Nvlink5Rule(xid, unit, masks["v1"], masks["v2"], status, action, "", "non_fatal")


RULES = (
    rule("SAW_MVB", 1),
    rule("SAW_MVB", 2, action="RESET_GPU"),
    rule("SAW_MVB"),
    rule("RLW/TLW", masks=OTHER),
    rule("SAW_MVB", 1, xid=145),
)


def message(
    info: int = 0x21,
    status: int = 1,
    *,
    unit: str = "SAW_MVB",
    severity: str = "Nonfatal",
    injected: int = 0,
    link: int = 8,
) -> str:
    return f"{unit} {severity} XC0 i{injected} Link {link:02d} (0x{info:08x} 0x{status:08x} 0x00000000 0x00000000)"


def read(text: str, driver: int | None = 570) -> Nvlink5Error:
    result = decode_nvlink5(144, text, RULES, driver)
    assert result is not None
    return result


def test_message_has_unit_severity_and_link() -> None:
    result = read(message(severity="Fatal", link=17))
    assert (result.unit, result.fatal, result.injected, result.link) == ("SAW_MVB", True, False, 17)


@pytest.mark.parametrize("severity", ["Nonfatal", "Non-fatal"])
def test_non_fatal_is_written_in_two_ways(severity: str) -> None:
    assert read(message(severity=severity)).fatal is False


@pytest.mark.parametrize("severity", ["Fatal", "Nonfatal"])
@pytest.mark.parametrize("injected", [0, 1])
def test_columns_are_padded(severity: str, injected: int) -> None:
    text = message(unit="SAW_MVB   ", severity=f"{severity:<9}", injected=injected).replace("(", " (")
    result = read(text)
    assert (result.unit, result.fatal, result.injected) == ("SAW_MVB", severity == "Fatal", bool(injected))
    assert (result.link, result.rule) == (8, RULES[0])


@pytest.mark.parametrize(("status", "at"), [(1, 0), (2, 1), (4, 2)])
def test_rule_for_an_errstatus_precedes_a_rule_for_any(status: int, at: int) -> None:
    assert read(message(status=status)).rule is RULES[at]


@pytest.mark.parametrize(
    ("info", "unit", "driver", "at"),
    [
        (0x21, "SAW_MVB", 574, 0),
        (0x01, "SAW_MVB", 574, None),
        (0x01, "SAW_MVB", 575, 0),
        (0x21, "RLW", 575, 3),
        (0x21, "SAW_MVB", None, 0),
        (0x21, "RLW", None, 3),
        (0x7E, "SAW_MVB", None, None),
    ],
)
def test_layout_follows_the_driver_or_else_the_printed_unit(
    info: int, unit: str, driver: int | None, at: int | None
) -> None:
    assert read(message(info, unit=unit), driver).rule == (None if at is None else RULES[at])


def test_injected_error_is_recognised() -> None:
    assert read(message(injected=1)).injected


def test_a_message_may_name_no_link() -> None:
    assert read(message().replace("Link 08", "Link -1")).link == -1


@pytest.mark.parametrize("text", ["", "GPU has fallen off the bus.", "SAW_MVB Fatal XC0 i0 Link 08 ()"])
def test_message_in_another_form_is_not_decoded(text: str) -> None:
    assert decode_nvlink5(144, text, RULES, 570) is None
