"""Commands of the other pages: certificates and services by hand, the socket, a policy, and a recording that changes."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator

import pytest

from fixtures.bundles import bundle_path
from tests.docs.pages import blocks
from tests.steps.reader import Reader, joined
from tests.waiting import until

pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.xdist_group("steps"),
    pytest.mark.usefixtures("installed"),
]

STANDALONE, SLURM = "docs/install/standalone.md", "docs/quickstart/slurm.md"
SETTINGS, API, RECORDINGS = (
    f"docs/reference/{name}.md" for name in ("agent-settings", "http-api", "recordings")
)
POLICY, ENFORCE, RETURN = (
    "docs/concepts/policy.md",
    "docs/tasks/enforce-the-first-check.md",
    "docs/tasks/return-a-node.md",
)
BY_SYSTEMD = "^systemctl"


@pytest.fixture(autouse=True)
def _leave_no_state(reader: Reader) -> Iterator[None]:
    """Delete the state of the services, which has a pause and nodes: the pages begin without."""
    yield
    reader.close("agent", "aggregator")
    reader.machine.run(
        "rm -rf /var/lib/nodeguard-aggregator /var/lib/nodeguard /etc/nodeguard /run/nodeguard*"
    )


def sockets(reader: Reader) -> None:
    for directory in ("nodeguard", "nodeguard-aggregator"):
        reader.machine.path(f"/run/{directory}").mkdir(exist_ok=True)


def test_a_fleet_with_certificates_runs_without_systemd(reader: Reader) -> None:
    """The aggregator and an agent with the settings of the page, over TLS, with a certificate of the page each."""
    machine = reader.machine
    sockets(reader)
    with machine.path("/etc/hosts").open("a") as hosts:
        hosts.write("127.0.0.1 nodeguard.example\n")
    (machine.clone / "policy.yaml").write_text("defaultMode: observe\n")
    machine.path("/etc/nodeguard").mkdir(exist_ok=True)
    shutil.copy(
        machine.clone / "daemonset/etc/nodeguard/agent.yaml", machine.path("/etc/nodeguard/agent.yaml")
    )
    # The aggregator starts at the end of the section: what nodes copy from it comes then.
    copies = r"ca\.crt /etc"
    reader.follow(
        STANDALONE, "Set up", leave_out=f"{BY_SYSTEMD}|{copies}|pip", files=["/etc/nodeguard/agent.yaml"]
    )
    machine.run("cp /var/lib/nodeguard-aggregator/ca.crt .")
    reader.run_printed(STANDALONE, copies)
    [printed] = [line for block in blocks(SETTINGS) for _, line in block.command_lines()]
    reader.run_printed(SETTINGS, re.escape(printed), more=f"--from {bundle_path('healthy-dgx-h100')}")
    until(lambda: "OK  1 node" in machine.run("nodeguard status", (0, 3)), every=0.2)
    outputs = reader.run_printed(STANDALONE, "^nodeguard (status|get|pause)")
    assert "OK  1 node" in outputs["nodeguard status"]
    assert outputs['nodeguard pause --reason "a bad driver"'].startswith("paused: no new marks are advised")
    assert json.loads(outputs["nodeguard get incidents -o json"])["incidents"] == []
    [status] = reader.follow(API).values()
    assert json.loads(status)["agents"]["reported"] == 1


def test_the_policy_is_started_by_hand(reader: Reader) -> None:
    sockets(reader)
    (reader.machine.clone / "policy.yaml").write_text("modeRules: [{check: gpu-lost, mode: enforce}]\n")
    reader.run_printed(POLICY, "^nodeguard policy example", names={"policy.yaml": "example.yaml"})
    outputs = reader.run_printed(POLICY, "^nodeguard policy (check|schema)")
    assert joined(outputs["nodeguard policy check policy.yaml --nodes 512"]).startswith(
        "policy.yaml - ok quarantine 1 of "
    )
    assert "defaultMode: observe" in (reader.machine.clone / "example.yaml").read_text()
    assert json.loads(outputs["nodeguard policy schema"])["$schema"]
    reader.run_printed(ENFORCE, "^(install|nodeguard aggregator)")
    until(lambda: "enforced: gpu-lost" in reader.machine.run("nodeguard status"), every=0.2)


def test_a_finding_is_cleared_on_the_node(reader: Reader) -> None:
    sockets(reader)
    reader.start(
        "agent", f"nodeguard agent --from {bundle_path('xid-old')} --socket /run/nodeguard/agent.sock"
    )

    def is_active() -> bool:
        metrics = reader.machine.get("http://127.0.0.1:9434/metrics")
        return bool(re.search(r'^nodeguard_finding\{.*check="gpu-ecc-uncorrectable"', metrics, re.MULTILINE))

    until(is_active, every=0.2)
    [answer] = reader.run_printed(
        RETURN, "^nodeguard clear", names={"gpu/0000:3b:00": "gpu/0000:43:00"}
    ).values()
    assert answer.startswith("gpu-ecc-uncorrectable on GPU 0000:43:00 is cleared")
    until(lambda: not is_active(), every=0.2)


def test_a_recording_changes_while_an_agent_replays_it(reader: Reader) -> None:
    machine = reader.machine
    shutil.copytree(bundle_path("healthy-dgx-h100"), machine.clone / "changed", symlinks=True)
    reader.start("agent", "nodeguard agent --from changed --speed 60")
    reader.follow(RECORDINGS, "Change a bundle while an agent replays it", names={"DIR": "changed"})

    def checks() -> set[str]:
        return set(re.findall(r'check="([\w-]+)"', machine.get("http://127.0.0.1:9434/metrics")))

    until(lambda: {"gpu-gsp-failure", "kernel-panic"} <= checks(), lambda: str(checks()), every=0.2)
