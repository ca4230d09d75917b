"""nodeguard explain."""

from __future__ import annotations

import json

import pytest

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.main import main


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["explain", *words]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_every_check_can_be_explained(capsys: pytest.CaptureFixture[str]) -> None:
    catalogue, _ = load_catalogue()
    for check in catalogue.checks:
        text = said(capsys, check.id)
        assert check.title in text
        assert " ".join(check.remedy.split()) in text


@pytest.mark.slow
def test_every_xid_and_sxid_can_be_explained(capsys: pytest.CaptureFixture[str]) -> None:
    catalogue, _ = load_catalogue()
    for code in catalogue.xids:
        assert f"Xid {code} - " in said(capsys, "xid", str(code))
    for code in catalogue.sxids:
        assert f"SXid {code} - " in said(capsys, "sxid", str(code))


@pytest.mark.parametrize(
    ("code", "held"),
    [
        ("79", "held as fatal; reboot-node"),
        ("13", "held as the workload's"),
        ("48", "held as fatal; with 63 or 64 within a minute: let work end first"),
        ("94", "by the driver's own verdict"),
        ("145", "decoded by mask"),
        ("8", "held as warning; restart-workload"),
        ("63", "held as ignored; none"),
        ("167", "held as warning; watch"),
    ],
)
def test_an_xid_says_how_it_is_held(code: str, held: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert held in said(capsys, "xid", code)


def test_an_xid_names_the_checks_that_hear_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "xid", "79").endswith("checks gpu-lost")
    assert said(capsys, "xid", "13").endswith("checks gpu-xid-workload")


def test_an_unlisted_code_is_said_to_be_so(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "xid", "999")
    assert text.startswith("Xid 999 - not in this version's table")
    assert text.endswith("checks gpu-xid-unlisted")
    text = said(capsys, "sxid", "99999")
    assert "not in this version's table" in text
    assert "as this version knows them, list it" in text
    assert "blank" not in text


def test_a_code_that_is_but_a_name_has_no_blank_cell(capsys: pytest.CaptureFixture[str]) -> None:
    assert "action not listed" in said(capsys, "sxid", "10000")


@pytest.mark.parametrize("words", [["Xid", "79"], ["XID", "79"], ["xid79"], ["Xid 79"], ["xid:", "79"]])
def test_a_code_may_be_written_as_the_log_does(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, *words) == said(capsys, "xid", "79")


def test_a_check_may_be_written_in_capitals(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "GPU-LOST") == said(capsys, "check", "gpu-lost")


@pytest.mark.slow
def test_what_is_explained_names_no_file_that_users_lack(capsys: pytest.CaptureFixture[str]) -> None:
    catalogue, _ = load_catalogue()
    for words in (
        *(("xid", str(code)) for code in catalogue.xids),
        *(("sxid", str(code)) for code in catalogue.sxids),
        *((check.id,) for check in catalogue.checks),
    ):
        text = said(capsys, *words)
        assert ".yaml" not in text, words
        assert "docs/" not in text, words


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["gpu-lots"], "'gpu-lots' is no check: did you mean gpu-lost"),
        (["xid", "seven"], "'seven' is no Xid: write its number"),
        (["sxid", "9" * 30], "is no SXid: write its number"),
        (["79"], "'79' is a number alone: write nodeguard explain xid 79, or sxid 79"),
        (["xid"], "'xid' needs a number: write nodeguard explain xid 79"),
        (["one", "two", "three"], "'one two three' is nothing to explain"),
    ],
)
def test_what_cannot_be_explained_ends_with_3(
    words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *words]) == 3
    assert error in capsys.readouterr().err


def test_machines_are_told_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "xid", "79", "--format", "json"]) == 0
    code = json.loads(capsys.readouterr().out)
    assert (code["of"], code["facts"]["checks"]) == ("Xid 79", ["gpu-lost"])
    assert code["title"].startswith("GPU has fallen off the bus")
    assert len(code["facts"]["note"]) > 1
    assert main(["explain", "GPU-LOST", "--format", "json"]) == 0
    check = json.loads(capsys.readouterr().out)
    assert (check["id"], check["health"], check["when"]["type"]) == ("gpu-lost", "fatal", "any")
