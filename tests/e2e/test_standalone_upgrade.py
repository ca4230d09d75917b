"""A site without Kubernetes is upgraded and rolled back: old agents, and one state file for both versions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.earlier_version import COMMIT, EarlierVersion, has_earlier_version
from tests.e2e.processes import copy_bundle, get_page, query_socket, running, until
from tests.e2e.test_standalone import BUNDLE, COMMAND, XID, Site, insecure_settings
from tests.ports import free_address

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not has_earlier_version(), reason=f"the history of this checkout has no commit {COMMIT[:8]}"
    ),
]

NAMES = ("gpu-1", "gpu-2")


@contextmanager
def aggregator(site: Site, program: Sequence[str]) -> Iterator[None]:
    command = site.command("--insecure")
    log = site.directory / "aggregator.log"
    with running(log, *program, *command[len(COMMAND) :]):
        until(lambda: "listens for agents" in log.read_text(), log)
        site.wait_for_reports(len(NAMES))
        yield


@contextmanager
def agent(site: Site, name: str, program: Sequence[str]) -> Iterator[Path]:
    """Run an agent, and yield the bundle that it reads."""
    own, listen = site.directory / name, free_address()
    own.mkdir()
    bundle = copy_bundle(BUNDLE, own)
    (own / "agent.yaml").write_text(
        f"node: {name}\nstate: {own}/state\naggregator:\n{insecure_settings(site)}"
    )
    options = ["--listen", listen, "--socket", str(own / "socket"), "--config", f"{own}/agent.yaml"]
    with running(own / "agent.log", *program, "agent", *options, "--from", f"{bundle}"):
        until(lambda: get_page(listen, "/readyz") == "ready\n", own / "agent.log")
        yield bundle


def incidents(site: Site) -> dict[str, tuple[Any, ...]]:
    """Return the open incidents by node."""
    items = query_socket(site.socket, "/v1/incidents").get("incidents", ())
    return {
        item["node"]: tuple(item.get(key) for key in ("name", "state", "since", "acknowledged"))
        for item in items
    }


def test_both_versions_use_one_state_file_and_agents_of_the_earlier_one(tmp_path: Path) -> None:
    site = Site(tmp_path)
    earlier = (sys.executable, *EarlierVersion(tmp_path).program)
    with ExitStack() as stack:
        bundles = [stack.enter_context(agent(site, name, earlier)) for name in NAMES]
        with aggregator(site, earlier):
            with (bundles[0] / "kmsg").open("a") as kernel:
                kernel.write(XID)
            until(lambda: site.states() == {"gpu-1": "Advised"}, site.log)
            name = incidents(site)["gpu-1"][0]
            command = [
                *earlier,
                "incidents",
                "acknowledge",
                name,
                "--by",
                "ada",
                "--socket",
                str(site.socket),
            ]
            subprocess.run(command, check=True)
            before = incidents(site)
        with aggregator(site, COMMAND):
            until(lambda: incidents(site) == before, site.log)
            with (bundles[1] / "kmsg").open("a") as kernel:
                kernel.write(XID)
            until(lambda: site.states() == {"gpu-1": "Advised", "gpu-2": "Withheld"}, site.log)
            both = incidents(site)
        with aggregator(site, earlier):
            until(lambda: incidents(site) == both, site.log)
        with aggregator(site, COMMAND):
            until(lambda: incidents(site) == both, site.log)
            assert site.run("incidents", "clear", "gpu-1", "--by", "ada").returncode == 0
            until(lambda: site.states() == {"gpu-2": "Advised"}, site.log)
            left = incidents(site)
        with aggregator(site, earlier):
            until(lambda: incidents(site) == left, site.log)
