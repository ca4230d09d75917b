"""The quick starts of README.md and docs/quickstart, followed from an empty machine on, in their order."""

from __future__ import annotations

import json
import os
import re
from textwrap import dedent

import pytest

from tests.docs.pages import example, text
from tests.steps.reader import Reader, joined
from tests.waiting import until

pytestmark = [pytest.mark.namespaces, pytest.mark.root, pytest.mark.slow, pytest.mark.xdist_group("steps")]

ONE, SLURM = "docs/quickstart/one-machine.md", "docs/quickstart/slurm.md"

# This machine may have any health; a recording has a known one.
ANY = (0, 1, 2, 3)


def test_the_readme_leads_to_a_first_check(reader: Reader) -> None:
    outputs = reader.follow(
        "README.md", "Quick start: one machine", codes={"/opt/nodeguard/bin/nodeguard check": ANY}
    )
    assert re.match(r"(OK|WARNING|SUSPECT|FATAL|UNKNOWN)  ", outputs["/opt/nodeguard/bin/nodeguard check"])


def test_the_page_of_one_machine_runs_as_printed(reader: Reader) -> None:
    codes = dict.fromkeys(
        (
            *("nodeguard check", "nodeguard check --duration 30s", "nodeguard check -o json"),
            *("nodeguard check --quiet", "nodeguard check --fail-on suspect", "nodeguard check -v"),
        ),
        ANY,
    )
    reader.follow("README.md", "Quick start: Slurm and bare metal")
    lost = {"nodeguard check --from fixtures/gpu-off-bus": (2,)}
    outputs = reader.follow(ONE, codes={**codes, **lost}, leave_out="-VERSION-")
    assert json.loads(outputs["nodeguard check -o json"])["version"] == 1
    last = joined(outputs["nodeguard check"].split("\n\n")[-1]).strip()
    assert re.fullmatch(r"\d+ checks passed; (-v lists them|.*: add -v to see everything)", last)
    assert re.search(r"^passed  ", outputs["nodeguard check -v"], re.MULTILINE)
    assert re.match(r"((WARNING|SUSPECT|FATAL|UNKNOWN)  |$)", outputs["nodeguard check --quiet"])
    for command in ("nodeguard check --duration 30s", "nodeguard check --fail-on suspect"):
        assert re.match(r"(OK|WARNING|SUSPECT|FATAL|UNKNOWN)  ", outputs[command])
    shown = outputs["nodeguard check --from fixtures/gpu-off-bus"]
    assert shown.startswith(printed_check())
    # The agent replays a minute in a second, and the GPU is lost after 55 s.
    until(lambda: 'check="gpu-lost"' in reader.machine.get("http://127.0.0.1:9434/metrics"), every=0.2)


def test_the_page_of_slurm_leads_to_an_aggregator_with_advice(reader: Reader) -> None:
    shows = {
        "nodeguard status": example(SLURM, "FATAL  1 node"),
        "nodeguard get nodes": "gpu-1",
        "nodeguard describe node gpu-1": "gpu-lost",
    }
    rehearsal = "NODEGUARD_FROM=fixtures/gpu-off-bus /etc/slurm/nodeguard-healthcheck"
    outputs = reader.follow(
        SLURM,
        files=["/etc/slurm/slurm.conf", "/etc/nodeguard/agent.yaml"],
        codes={rehearsal: {1}},  # it finds the fault, and no Slurm on this machine
        shows=shows,
    )
    assert joined(outputs["nodeguard status"]).startswith(joined(shows["nodeguard status"]))
    assert outputs["nodeguard describe node gpu-1"].startswith("FATAL  gpu-1: dry run: ")
    program = reader.machine.path("/etc/slurm/nodeguard-healthcheck")
    assert (
        f"HealthCheckProgram=/etc/slurm/{program.name}"
        in reader.machine.path("/etc/slurm/slurm.conf").read_text()
    )
    assert os.access(program, os.X_OK)


def printed_check() -> str:
    """Return the output of nodeguard check in README.md, which leaves out the end."""
    [shown] = re.findall(r"    \$ nodeguard check.*\n((?:    .*\n|\n)+)", text("README.md"))
    return dedent(shown).strip()
