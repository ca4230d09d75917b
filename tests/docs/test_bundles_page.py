"""The faults that docs/reference/recordings.md puts into a running agent are found, and stay."""

from __future__ import annotations

import re
import subprocess
from functools import partial
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


def test_faults_are_found_and_outlast_the_next_readings(tmp_path: Path) -> None:
    bundle = copy_bundle("healthy-dgx-h100", tmp_path)
    with running("--from", str(bundle), "--speed", "60") as (_, url):
        fetch(f"{url}/readyz")

        def metrics() -> str:
            return fetch(f"{url}/metrics")

        def is_found(check: str) -> bool:
            return f'check="{check}"' in metrics()

        for command, check in zip(PRINTED, FOUND, strict=True):
            assert not is_found(check)
            subprocess.run(["sh", "-c", command.replace("DIR", str(bundle))], check=True)
            until(partial(is_found, check), every=0.1)
        before = rounds(metrics())
        # Each source is read several times meanwhile.
        until(lambda: rounds(metrics()) > before + 20, every=0.1)
        assert [check for check in FOUND if not is_found(check)] == []
