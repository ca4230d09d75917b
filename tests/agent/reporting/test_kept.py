from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from nodeguard.agent.reporting.spool import aged, keep, restored
from nodeguard.wire.encoding import EncodingError
from nodeguard.wire.report import VERSION
from nodeguard.wire.report_builder import build_report
from tests.wire.scene import FACTS, NOW, finding, verdict

SICK = build_report(verdict(finding()), NOW, FACTS, 7)
EXAMPLES = Path(__file__).parent.parent.parent / "wire" / "examples"


def test_what_is_kept_comes_back() -> None:
    assert restored(keep(SICK, NOW)) == (SICK, NOW)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_what_another_version_kept_is_sent_as_this_one(version: int) -> None:
    kept = msgspec.json.encode({"at": NOW, "report": Raw((EXAMPLES / f"report-{version}.json").read_bytes())})
    report, at = restored(kept)
    assert (report.version, report.sequence, at) == (VERSION, 5000123, NOW)


@pytest.mark.parametrize("data", [b"", b"{}", b"[" * 99_999, b'{"at": 1}', b"\xff"])
def test_what_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(EncodingError, match="left out"):
        restored(data)


def test_the_age_runs_on_while_it_waits() -> None:
    later = replace(NOW, mono=NOW.mono + 60.0, wall=NOW.wall - 9e6)
    assert aged(SICK, NOW, later).age == 60.0
    rebooted = replace(NOW, boot_id="next", mono=5.0, wall=NOW.wall + 300.0)
    assert aged(SICK, NOW, rebooted).age == 300.0
    assert aged(SICK, NOW, replace(rebooted, wall=0.0)).age == 0.0
