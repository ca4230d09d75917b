"""The version of policy, check and notification files: what is accepted, and how another one is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nodeguard.aggregator.notifications.settings import read_notifications
from nodeguard.aggregator.policy.policy_file import policy_errors, read_policy
from nodeguard.catalog.check_files import check_file_errors, read_check_file
from nodeguard.config.errors import ConfigError
from tests.catalog.test_conditions import SIGNALS

READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "policy": ("pause: true\n", lambda path: read_policy(path, {}, 0.0, ()).policy),
    "checks": ("family: site\n", lambda path: read_check_file(path, SIGNALS).checks),
    "notifications": ("webhooks: [{name: chat, url: 'https://chat.example'}]\n", read_notifications),
}


def with_version(folder: Path, version: str, text: str) -> Path:
    path = folder / "site.yaml"
    path.write_text(f"# A comment.\nversion: {version}\n{text}")
    return path


@pytest.mark.parametrize("kind", READERS)
def test_a_file_without_version_is_of_version_1(tmp_path: Path, kind: str) -> None:
    text, read = READERS[kind]
    old = tmp_path / "old.yaml"
    old.write_text(text)
    assert read(old) == read(with_version(tmp_path, "1", text))


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("2", "2 is newer than this nodeguard, which accepts version 1: upgrade nodeguard, or write the file for version 1"),
        ("0", "0 is no version: 1 is accepted: write `version: 1`"),
        ("true", "True is no version: 1 is accepted: write `version: 1`"),
        ("1.0", "1.0 is no version: 1 is accepted: write `version: 1`"),
        ("'1'", "'1' is no version: 1 is accepted: write `version: 1`"),
        ("v1", "'v1' is no version: 1 is accepted: write `version: 1`"),
        ("", "nothing is no version: 1 is accepted: write `version: 1`"),
        ("[1]", "a list is no version: 1 is accepted: write `version: 1`"),
    ],
)  # fmt: skip
def test_an_unknown_version_is_refused(tmp_path: Path, kind: str, version: str, message: str) -> None:
    text, read = READERS[kind]
    path = with_version(tmp_path, version, text)
    with pytest.raises(ConfigError) as caught:
        read(path)
    assert str(caught.value) == f"{path}:2: version: {message}"


@pytest.mark.parametrize(
    "errors", [lambda path: policy_errors(path, ()), lambda path: check_file_errors(path, SIGNALS)]
)
def test_fields_of_a_newer_version_are_not_judged(
    tmp_path: Path, errors: Callable[[Path], list[ConfigError]]
) -> None:
    [error] = errors(with_version(tmp_path, "2", "futureField: {a: 1}\nbudget: [1]\nchecks: {b: 2}\n"))
    assert error.field == "version"
