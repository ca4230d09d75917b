from __future__ import annotations

from argparse import ArgumentTypeError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.cli.usage import FATAL, OK, UNKNOWN, WARNING, ArgumentParser, duration


def test_exit_codes_are_those_of_monitoring_plugins() -> None:
    assert (OK, WARNING, FATAL, UNKNOWN) == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("10m", 600), ("2h", 7200), ("1d", 86_400), ("45", 45), ("0.5s", 0.5), ("30d", 2_592_000)],
)
def test_a_length_of_time(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "soon", "-5s", "0", "0s", "31d", "5 min", "1w", "nan", "inf", "infs", "1e999d", "5ss"]
)
def test_what_is_no_length_of_time_says_how_to_write_one(text: str) -> None:
    with pytest.raises(ArgumentTypeError) as refused:
        duration(text)
    assert str(refused.value) == f"'{text}' is no length of time: write it like 30s, 10m or 2h"


@given(st.text())
def test_any_text_is_a_length_of_time_or_refused(text: str) -> None:
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


def test_a_wrong_value_names_its_option(capsys: pytest.CaptureFixture[str]) -> None:
    parser = ArgumentParser(prog="nodeguard check")
    parser.add_argument("--for", type=duration)
    with pytest.raises(SystemExit):
        parser.parse_args(["--for", "soon"])
    assert "argument --for: 'soon' is no length of time: write it like" in capsys.readouterr().err
