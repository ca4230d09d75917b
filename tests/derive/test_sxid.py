from __future__ import annotations

import pytest

from nodeguard.derive.sxid import held
from nodeguard.model.observation import Event
from nodeguard.model.signal import Scalar
from tests.derive.look import tables


def said(code: int, severity: str = "") -> tuple[str, str, str]:
    """How a line of SXid is held: verdict, action and severity."""
    line: dict[str, Scalar] = {"sxid": code, "msg": "", **({"sev": severity} if severity else {})}
    fields = held(Event("nvswitch.sxid.line", 10, "text", line), tables()).fields
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
def test_the_printed_word_decides_and_without_one_the_table(code: int, printed: str, verdict: str) -> None:
    assert said(code, printed)[0] == verdict


@pytest.mark.parametrize(
    ("printed", "verdict"), [("Fatal", "fatal"), ("Non-fatal", "warning"), ("", "warning")]
)
def test_a_code_that_the_table_does_not_list_is_kept(printed: str, verdict: str) -> None:
    assert said(99999, printed)[0] == verdict


def test_what_is_fatal_is_acted_on() -> None:
    assert said(20001, "Fatal")[1] == "reset-gpu"
    assert said(99999, "Fatal")[1] == "reset-gpu"
    assert said(10003, "Fatal")[1] == "reboot-node"


def test_what_the_guide_asks_for_is_carried_where_it_is_no_more_than_a_warning() -> None:
    assert said(19084, "Non-fatal")[:2] == ("warning", "reboot-node")
    assert said(10003, "Non-fatal")[:2] == ("warning", "watch")
    assert said(11001, "Non-fatal")[:2] == ("warning", "watch")


def test_heat_begins_with_one_code_and_ends_with_another() -> None:
    assert said(10004) == ("warning", "watch", "no severity")
    assert said(10005)[0] == "ignored"


def test_link_and_words_of_the_line_are_kept() -> None:
    line = Event(
        "nvswitch.sxid.line",
        10,
        "text",
        {"sxid": 20034, "sev": "Fatal", "link": 48, "msg": "LTSSM Fault Up"},
        3,
    )
    event = held(line, tables())
    assert (event.signal, event.at, event.text, event.count) == ("nvswitch.sxid", 10, "text", 3)
    assert (event.fields["link"], event.fields["summary"]) == (48, "LTSSM Fault Up")
