from __future__ import annotations

from argparse import ArgumentTypeError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.cli.usage import (
    FATAL,
    OK,
    UNKNOWN,
    WARNING,
    ArgumentParser,
    did_you_mean,
    duration,
    whole_number,
)

NOT_A_DURATION = "is not a duration: expected a value like 30s, 10m or 2h"
OUT_OF_RANGE = "is out of range: expected more than 0s and at most 30d"


def test_exit_codes_are_those_of_monitoring_plugins() -> None:
    assert (OK, WARNING, FATAL, UNKNOWN) == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("10m", 600), ("2h", 7200), ("1d", 86_400), ("45", 45), ("0.5s", 0.5), ("30d", 2_592_000)],
)
def test_a_duration(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        *((text, NOT_A_DURATION) for text in ("", "s", "soon", "5 min", "1w", "nan", "5ss")),
        *((text, OUT_OF_RANGE) for text in ("-5s", "0", "0s", "31d", "inf", "infs", "1e999d")),
    ],
)
def test_an_invalid_duration_is_refused_with_the_remedy(text: str, problem: str) -> None:
    with pytest.raises(ArgumentTypeError) as refused:
        duration(text)
    assert str(refused.value) == f"'{text}' {problem}"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("ack", "did you mean acknowledge? Or "),
        ("clera", "did you mean clear? Or "),
        ("w", ""),
        ("list", ""),
    ],
)
def test_a_similar_name_or_a_longer_one_is_suggested(name: str, hint: str) -> None:
    assert did_you_mean(name, ["acknowledge", "clear", "withdraw"]) == hint


def test_a_negative_duration_is_a_value_and_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    parser = ArgumentParser(prog="nodeguard check")
    parser.add_argument("-d", "--duration", type=duration)
    for text in ("-5s", "-0.5", "-2h"):
        with pytest.raises(SystemExit):
            parser.parse_args(["--duration", text])
        expected = (
            f"nodeguard check: argument -d/--duration: '{text}' {OUT_OF_RANGE}; see nodeguard check --help"
        )
        assert capsys.readouterr().err == f"{expected}\n"


@given(st.text())
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    try:
        assert 0 < duration(text) <= 30 * 86_400
    except ArgumentTypeError:
        return


def test_a_wrong_option_ends_with_3_as_2_means_fatal(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        ArgumentParser(prog="nodeguard check").parse_args(["--frob"])
    assert left.value.code == UNKNOWN
    assert capsys.readouterr().err == (
        "nodeguard check: unrecognized arguments: --frob; see nodeguard check --help\n"
    )


def test_a_misspelt_option_is_reported_before_a_missing_one(capsys: pytest.CaptureFixture[str]) -> None:
    parser = ArgumentParser(prog="nodeguard backtest")
    parser.add_argument("--policy", required=True)
    for words in (["--polcy", "a"], ["--polcy=a"]):
        with pytest.raises(SystemExit) as left:
            parser.parse_args(words)
        assert left.value.code == UNKNOWN
        assert capsys.readouterr().err == (
            "nodeguard backtest: unrecognized arguments: --polcy: did you mean --policy? "
            "See nodeguard backtest --help\n"
        )
    assert parser.parse_args(["--pol", "a"]).policy == "a"


def test_a_wrong_value_names_its_option(capsys: pytest.CaptureFixture[str]) -> None:
    parser = ArgumentParser(prog="nodeguard check")
    parser.add_argument("--duration", type=duration)
    with pytest.raises(SystemExit):
        parser.parse_args(["--duration", "soon"])
    assert "argument --duration: 'soon' is not a duration: expected a value like" in capsys.readouterr().err


def test_an_unknown_choice_is_refused_with_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    parser = ArgumentParser(prog="nodeguard policy")
    parser.add_subparsers(dest="verb", metavar="check | schema", required=True).add_parser("check")
    with pytest.raises(SystemExit):
        parser.parse_args(["chek"])
    assert "'chek' is invalid: did you mean check? Or expected check; see" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["1", "10"])
def test_a_whole_number_in_its_range(text: str) -> None:
    assert whole_number(1, 10)(text) == int(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [("0", "out of range"), ("-1", "out of range"), ("11", "out of range"), ("x", "not a whole")],
)
def test_another_number_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ArgumentTypeError, match=problem):
        whole_number(1, 10)(text)
