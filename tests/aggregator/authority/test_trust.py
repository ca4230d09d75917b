"""What the server shows: the operator's files, read again, and what cannot be used."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from nodeguard.aggregator.authority.certificates import generation, serving
from nodeguard.aggregator.authority.given import Given
from nodeguard.aggregator.authority.showing import Showing, ShowingError, context
from nodeguard.aggregator.authority.trust import Trust, UnavailableError


class Scene:
    def __init__(self, path: Path) -> None:
        self.by = generation(time.time())
        self.certificate, self.key = path / "tls.crt", path / "tls.key"
        self.now = time.time()
        self.told: list[str] = []
        self.trust = Trust(Given(str(self.certificate), str(self.key)), self.told.append, lambda: self.now)

    def write(self) -> Showing:
        shown = serving(self.by, ["a.example"], self.now)
        self.certificate.write_text(shown.certificate)
        self.key.write_text(shown.key)
        return shown


async def test_files_are_read_again_and_wrong_ones_leave_what_was(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with pytest.raises(UnavailableError):
        scene.trust.context()
    assert not await scene.trust.turn()
    assert scene.told == [f"{scene.certificate}: No such file or directory: put it there, or set its path; agents are not heard"]  # fmt: skip
    shown = scene.write()
    assert await scene.trust.turn()
    first = scene.trust.context()
    assert await scene.trust.turn()
    assert scene.trust.context() is first
    assert abs(scene.trust.until - shown.until) < 1.0

    old_key = scene.key.read_text()
    scene.write()
    scene.key.write_text(old_key)
    for _ in range(3):
        assert not await scene.trust.turn()
    assert scene.trust.context() is first
    assert scene.told[1:] == [
        (
            "certificate and key cannot be used, the key is not that of the certificate: write both there in PEM; "
            "the certificate from before is shown on"
        )
    ]
    scene.write()
    assert await scene.trust.turn()
    assert scene.trust.context() is not first
    assert not [line for line in scene.told if old_key.splitlines()[1] in line]


async def test_a_certificate_that_has_expired_is_told(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write()
    scene.now += 365 * 86400.0
    assert not await scene.trust.turn()
    assert "the certificate has expired" in scene.told[0]


@pytest.mark.parametrize("wrong", ["", "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"])
def test_what_is_no_certificate_is_refused(wrong: str) -> None:
    shown = serving(generation(time.time()), ["a.example"], time.time())
    for one in (Showing(wrong, shown.key), Showing(shown.certificate, wrong), Showing(shown.certificate, shown.key, wrong or "x")):  # fmt: skip
        with pytest.raises(ShowingError, match="PEM"):
            context(one)
