"""Words of the output, and the files that have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeguard.catalog.words import find_alert, find_word, load_words
from nodeguard.config.errors import ConfigError
from nodeguard.model.catalogue import Alert, Word

ROW = "- {names: [fan fault, FanFault*], group: Parts, meaning: A fan has stopped.}\n"


def load(folder: Path, rows: str) -> tuple[Word, ...]:
    (folder / "words.yaml").write_text(rows)
    (folder / "metrics.yaml").write_text("- {metric: fan_speed_ratio, meaning: Speed of a fan.}\n")
    return load_words(folder)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("fan-fault", "fan fault"),
        ("FanFault", "fan fault"),
        ("FanFaultReplace", "fan fault"),
        ("fan_speed_ratio", "fan_speed_ratio"),
        ("fan", None),
    ],
)
def test_a_word_has_any_case_and_separators(tmp_path: Path, text: str, name: str | None) -> None:
    word = find_word(load(tmp_path, ROW), text)
    assert (word.names[0] if word else None) == name


def test_a_name_without_a_star_counts_first(tmp_path: Path) -> None:
    words = load(tmp_path, ROW + "- {names: [FanFaultReplace], group: Parts, meaning: Replace it.}\n")
    assert find_word(words, "fan fault replace") == Word(("FanFaultReplace",), "Replace it.")


def test_a_name_of_two_words_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r":2: names\[0\]: 'fanfault' is on line 1 already"):
        load(tmp_path, ROW + "- {names: [Fan-Fault], group: Parts, meaning: Another one.}\n")


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("FanStopped", True),
        ("fanstopped", True),
        ("[FIRING:1] FanStopped (rack-7)", True),
        ("FanStop", False),
    ],
)
def test_an_alert_is_found_by_its_name_in_a_text(text: str, is_found: bool) -> None:
    alert = Alert("FanStopped", "A fan has stopped.", "Look at it.", "Replace it.")
    assert find_alert([alert], text) == (alert if is_found else None)
