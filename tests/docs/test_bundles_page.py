"""The faults that docs/reference/recordings.md puts into a running agent are found, and stay."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.commands.test_agent import fetch, running
from tests.docs.pages import text
from tests.e2e.processes import copy_bundle
from tests.waiting import until

pytestmark = pytest.mark.slow

# The command lines as they are printed, with what each of them makes the agent find.
PRINTED = re.findall(r"^    (echo .*)$", text("docs/reference/recordings.md"), re.MULTILINE)
FOUND = ("gpu-gsp-failure", "kernel-panic", "port-flap")


def rounds(metrics: str) -> float:
    [value] = re.findall(r"^nodeguard_evaluations_total (\S+)$", metrics, re.MULTILINE)
    return float(value)


@pytest.mark.parametrize(("command", "check"), [*zip(PRINTED, FOUND, strict=True)], ids=FOUND)
def test_a_fault_is_found_and_outlasts_the_next_readings(command: str, check: str, tmp_path: Path) -> None:
    bundle = copy_bundle("healthy-dgx-h100", tmp_path)
    with running("--from", str(bundle), "--speed", "60") as (_, where):
        fetch(f"{where}/readyz")
        subprocess.run(["sh", "-c", command.replace("DIR", str(bundle))], check=True)
        until(lambda: f'check="{check}"' in fetch(f"{where}/metrics"))
        before = rounds(fetch(f"{where}/metrics"))
        # Each source is read several times meanwhile.
        after = until(lambda: metrics if rounds(metrics := fetch(f"{where}/metrics")) > before + 20 else "")
        assert f'check="{check}"' in after
