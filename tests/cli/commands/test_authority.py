"""nodeguard authority, against the API of an aggregator."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from nodeguard.aggregator.certificates.directory_store import DirectoryStore
from nodeguard.aggregator.certificates.self_signed_authority import SelfSignedAuthority
from nodeguard.cli.main import main
from tests.aggregator.api.service import RecordingActions, running_api
from tests.fleet.scene import Fleet


def test_the_authority_is_shown_and_rotated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = Fleet(1)
    authority = SelfSignedAuthority(DirectoryStore(str(tmp_path / "state")), ["a.example"])
    asyncio.run(authority.current(fleet.now.wall - 3 * 86_400.0))
    with running_api(tmp_path, fleet, RecordingActions(), authority) as path:
        assert main(["authority", "show", "--socket", path]) == 0
        head, row = capsys.readouterr().out.splitlines()
        assert head.split() == ["STATE", "CREATED", "SIGNS", "FROM", "EXPIRES"]
        assert row.startswith("signing  ")
        assert main(["authority", "rotate", "--socket", path]) == 0
        assert capsys.readouterr().out.startswith(
            "agents get a new certificate authority now; it signs from "
        )
        assert main(["authority", "rotate", "--socket", path]) == 3
        assert "not every agent trusts the newest authority yet: rotate after" in capsys.readouterr().err
        assert main(["authority", "show", "-o", "json", "--socket", path]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert [item["state"] for item in shown["authorities"]] == ["signing", "published"]
        assert shown["store"].endswith("authority.json")
        assert main(["authority", "show", "--socket", path]) == 0
        assert capsys.readouterr().out.splitlines()[-1].startswith("Only the newest one is left from 20")


def test_a_certificate_of_another_issuer_is_not_rotated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_api(tmp_path, Fleet(1), RecordingActions()) as path:
        assert main(["authority", "rotate", "--socket", path]) == 3
    assert "is not signed by nodeguard: rotate it with its own issuer" in capsys.readouterr().err
