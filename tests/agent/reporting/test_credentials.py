from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodeguard.agent.reporting.credentials import CredentialError, TokenFile


def test_a_rotated_token_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one.one\n")
    token = TokenFile(str(path))
    assert token.token() == "one.one"
    (tmp_path / "new").write_text("two.two\n")
    os.utime(tmp_path / "new", ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    os.replace(tmp_path / "new", path)
    assert token.token() == "two.two"


def test_a_rotation_behind_a_link_is_noticed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text(f"token-{name}")
    os.symlink("a", tmp_path / "..data")
    os.symlink("..data/token", tmp_path / "token")
    token = TokenFile(str(tmp_path / "token"))
    assert token.token() == "token-a"
    os.symlink("b", tmp_path / "..tmp")
    os.replace(tmp_path / "..tmp", tmp_path / "..data")
    assert token.token() == "token-b"


def test_without_the_file_the_last_token_stays(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("good")
    token = TokenFile(str(path))
    token.token()
    path.unlink()
    assert token.token() == "good"
    path.write_text("")
    assert token.token() == "good"
    path.write_text("better")
    assert token.token() == "better"


@pytest.mark.parametrize("text", ["", "two\nlines", "Bearer x", "x\r\nHost: evil", "\x00", "é", "x" * 20_000])
def test_an_invalid_token_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    with pytest.raises(CredentialError) as error:
        TokenFile(str(path)).token()
    assert str(path) in str(error.value)
    assert "evil" not in str(error.value)


def test_a_token_is_never_shown(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    token = TokenFile(str(tmp_path / "token"))
    token.token()
    assert "secret" not in f"{token!r} {token}"


def test_a_missing_file_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(CredentialError, match="mount the node's token"):
        TokenFile(str(tmp_path / "none")).token()
