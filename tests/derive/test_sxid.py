from __future__ import annotations

import pytest

from nodeguard.derive.sxid import decode_alarm_end, decode_sxid
from nodeguard.model.observation import Event
from nodeguard.model.signal import Scalar
from tests.derive.readings import tables


def decoded(code: int, severity: str = "") -> tuple[str, str, str]:
    """How a line of SXid is held: verdict, action and severity."""
    line: dict[str, Scalar] = {"sxid": code, "msg": "", **({"sev": severity} if severity else {})}
    fields = decode_sxid(Event("nvswitch.sxid.line", 10, "text", line), tables()).fields
    return str(fields["verdict"]), str(fields["action"]), str(fields["severity"])


@pytest.mark.parametrize(
    ("code", "printed", "verdict"),
    [
        (20034, "Fatal", "fatal"),
        (20034, "Non-fatal", "warning"),
        (20034, "Correctable", "ignored"),
        (20034, "", "fatal"),
        (20001, "", "warning"),
        (20001, "Fatal", "fatal"),
        (12028, "Non-fatal", "ignored"),
        (12028, "Fatal", "fatal"),
        (11001, "", "warning"),
    ],
)
def test_printed_severity_takes_precedence_over_the_table(code: int, printed: str, verdict: str) -> None:
    assert decoded(code, printed)[0] == verdict


@pytest.mark.parametrize(
    ("printed", "verdict"), [("Fatal", "fatal"), ("Non-fatal", "warning"), ("", "warning")]
)
def test_a_code_that_the_table_does_not_list_is_kept(printed: str, verdict: str) -> None:
    assert decoded(99999, printed)[0] == verdict


def test_fatal_sxid_has_an_action() -> None:
    assert decoded(20001, "Fatal")[1] == "reset-gpu"
    assert decoded(99999, "Fatal")[1] == "reset-gpu"
    assert decoded(10003, "Fatal")[1] == "reboot-node"


def test_warning_keeps_the_action_of_the_guide() -> None:
    assert decoded(19084, "Non-fatal")[:2] == ("warning", "reboot-node")
    assert decoded(10003, "Non-fatal")[:2] == ("warning", "monitor")
    assert decoded(11001, "Non-fatal")[:2] == ("warning", "monitor")


@pytest.mark.parametrize("begin", [10004, 28001, 28003])
def test_temperature_alarm_has_a_start_code_and_an_end_code(begin: int) -> None:
    assert decoded(begin) == ("hot", "monitor", "no severity")
    assert decoded(begin + 1) == ("ignored", "none", "no severity")
    end = decode_alarm_end(Event("nvswitch.sxid.line", 12, "text", {"sxid": begin + 1}), tables())
    assert end == Event("nvswitch.cool", 12, "text", {"sxid": begin})
    assert decode_alarm_end(Event("nvswitch.sxid.line", 12, "text", {"sxid": begin}), tables()) is None


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (10006, "NVSWITCH Temperature 108C | OVERT Threshold 106C"),
        (10006, "TSENSE OVERT Threshold reached. Shutting Down"),
        (10004, "PMGR OVERT Threshold reached. Shutting Down"),
    ],
)
def test_a_switch_that_shuts_down_for_its_temperature_is_fatal(code: int, words: str) -> None:
    line = Event("nvswitch.sxid.line", 10, "text", {"sxid": code, "msg": words})
    event = decode_sxid(line, tables())
    assert (event.fields["verdict"], event.fields["action"]) == ("fatal", "reboot-node")


@pytest.mark.parametrize(
    "words",
    [
        "NVSWITCH Temperature 95C | TSENSE WARN Threshold 94C",
        "Thermal Slowdown Engaged | Temp higher than WARN Threshold",
        "Thermal Slowdown Engaged | PMGR WARN Threshold reached",
    ],
)
def test_a_switch_that_only_slows_down_is_hot(words: str) -> None:
    line = Event("nvswitch.sxid.line", 10, "text", {"sxid": 10004, "msg": words})
    assert decode_sxid(line, tables()).fields["verdict"] == "hot"


def test_link_and_text_of_the_line_are_kept() -> None:
    line = Event(
        "nvswitch.sxid.line",
        10,
        "text",
        {"sxid": 20034, "sev": "Fatal", "link": 48, "msg": "LTSSM Fault Up"},
        3,
    )
    event = decode_sxid(line, tables())
    assert (event.signal, event.at, event.text, event.count) == ("nvswitch.sxid", 10, "text", 3)
    assert (event.fields["link"], event.fields["summary"]) == (48, "LTSSM Fault Up")
