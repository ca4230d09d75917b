"""The history of a real aggregator with real agents, read while it runs and after it was killed."""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.aggregator.history.scene import rows
from tests.e2e.processes import get_page, until
from tests.e2e.test_standalone import COMMAND, XID, Site, insecure_settings
from tests.waiting import PROMPTLY

pytestmark = pytest.mark.slow


def backtest_marks(site: Site) -> Any:
    arguments = ("backtest", "--policy", f"{site.directory}/policy.yaml", "-o", "json", f"{site.directory}")
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [policy] = json.loads(done.stdout)["policies"]
    return [(mark["node"], mark["check"], mark["state"]) for mark in policy["marks"]]


def test_the_history_survives_a_kill_and_can_be_replayed(tmp_path: Path) -> None:
    site, path = Site(tmp_path), tmp_path / "history.sqlite"
    options = ("--insecure", "--history", f"{tmp_path}")
    with ExitStack() as stack:
        process = stack.enter_context(site.aggregator(*options))
        bundles = [
            stack.enter_context(site.node(name, insecure_settings(site))) for name in ("gpu-1", "gpu-2")
        ]
        site.wait_for_reports(2)
        with (bundles[0] / "kmsg").open("a") as kernel:
            kernel.write(XID)
        until(lambda: site.states() == {"gpu-1": "Advised"}, site.log)
        site.run("pause", "--reason", "row 4 is rewired")
        until(lambda: rows(path, "SELECT 1 FROM report WHERE health = 'fatal'"), site.log)
        until(lambda: rows(path, "SELECT 1 FROM note WHERE kind = 'marks'"), site.log)
        assert ("gpu-1", "gpu-gsp-failure", "Marked") in backtest_marks(site)
        assert "nodeguard_aggregator_history_write_ok 1.0" in get_page(site.metrics, "/metrics")
        process.send_signal(signal.SIGKILL)
        process.wait(PROMPTLY)
        before = rows(path, "SELECT count(*) FROM report")
        stack.enter_context(site.aggregator(*options))
        site.wait_for_reports(2)
        until(lambda: rows(path, "SELECT text FROM note WHERE kind = 'pause'"), site.log)
    reports = rows(path, "SELECT boot, digest, passing FROM report WHERE node = 'gpu-2' ORDER BY id")
    assert all(report != following for report, following in pairwise(reports))
    assert rows(path, "SELECT count(*) FROM report") >= before
    assert rows(path, "SELECT node, gpus FROM node ORDER BY node") == [("gpu-1", 8), ("gpu-2", 8)]
    assert ("gpu-1", "gpu-gsp-failure", "Marked") in backtest_marks(site)


def test_an_unwritable_history_does_not_stop_the_aggregator(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (tmp_path / "taken").write_text("a file where a directory should be")
    with ExitStack() as stack:
        stack.enter_context(site.aggregator("--insecure", "--history", f"{tmp_path}/taken/history.sqlite"))
        stack.enter_context(site.node("gpu-1", insecure_settings(site)))
        site.wait_for_reports(1)
        until(lambda: "cannot write the history" in site.log.read_text(), site.log)
        assert "make it writable, or name another --history" in site.log.read_text()
        assert "nodeguard_aggregator_history_write_ok 0.0" in get_page(site.metrics, "/metrics")
