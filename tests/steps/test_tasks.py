"""The tasks that need no cluster, with their commands as the pages print them."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fixtures.bundles import bundle_path
from tests.docs.pages import blocks, example
from tests.steps.reader import Reader, joined, replaced
from tests.waiting import until

pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.xdist_group("steps"),
    pytest.mark.usefixtures("installed"),
]

RECORD, WRITE, PROBE = (
    f"docs/tasks/{name}.md" for name in ("record-a-machine", "write-a-check", "add-a-probe")
)
SIMULATE, BACKTEST = "docs/tasks/simulate.md", "docs/tasks/backtest.md"
REHEARSE, RESET, DOCTOR = (
    f"docs/tasks/{name}.md" for name in ("rehearse-a-fault", "reset-a-gpu", "check-the-installation")
)
AGENT = "docs/install/agent.md"
SLURM = "docs/quickstart/slurm.md"

# This machine may have any health.
ANY = (0, 1, 2, 3)
CHECKS = "/etc/nodeguard/checks.d"
OF_CLUSTERS = r"^(systemctl|helm|kubectl)"

# The pages name a GPU that this recording does not have.
GPU = {"0000:3b:00": "0000:1b:00", "gpu/0000:3b:00": "gpu/0000:1b:00"}


@contextmanager
def node(reader: Reader, *options: str) -> Iterator[None]:
    """Run an agent of a machine with eight GPUs, with a socket for commands."""
    bundle = bundle_path("healthy-dgx-h100")
    reader.machine.path("/run/nodeguard").mkdir(exist_ok=True)
    reader.start(
        "agent", f"nodeguard agent --from {bundle} --socket /run/nodeguard/agent.sock {shlex.join(options)}"
    )
    yield
    reader.close("agent")


def test_a_recording_gives_the_verdict_of_the_machine(reader: Reader) -> None:
    names = {"DIR": "recording", "10m": "2s"}
    codes = {"nodeguard check --from DIR": ANY}
    outputs = reader.follow(RECORD, names=names, codes=codes)
    assert re.match(r"(OK|WARNING|SUSPECT|FATAL|UNKNOWN)  ", outputs["nodeguard check --from DIR"])
    recorded = outputs["nodeguard record DIR --duration 10m --anonymise"]
    assert recorded == "recording: recorded. Check it with: nodeguard check --from recording\n"
    assert (reader.machine.clone / "recording/bundle.yaml").is_file()


def test_a_check_of_the_site_is_validated_and_tried(reader: Reader) -> None:
    machine = reader.machine
    lost = f"nodeguard check --checks {CHECKS} --from fixtures/gpu-off-bus"
    codes = {"nodeguard check -o json": ANY, f"nodeguard check --checks {CHECKS}": ANY, lost: (2,)}
    outputs = reader.follow(WRITE, files=[f"{CHECKS}/site.yaml"], codes=codes, leave_out=OF_CLUSTERS)
    assert "gpu-warm-here" in outputs[f"nodeguard checks --checks {CHECKS} --family site"]
    assert "GPU warmer than this room allows" in outputs[f"nodeguard explain gpu-warm-here --checks {CHECKS}"]
    # The file switches off a check of the clock, which this machine may fail.
    assert "clock-unsynchronized" not in outputs[f"nodeguard check --checks {CHECKS}"]
    assert outputs[lost].startswith("FATAL  gpu-off-bus should take no work. GPU lost: GPU 5 ")
    hot = machine.run(f"nodeguard check --checks {CHECKS} --from {bundle_path('gpu-hot')}", ANY)
    assert "GPU warmer than this room allows" in hot
    assert "seen once" in hot


def test_a_probe_is_a_finding_and_feeds_checks_of_the_site(reader: Reader) -> None:
    machine = reader.machine
    claims = json.loads(next(block for block in blocks(PROBE) if block.language == "json").text)
    claims["written_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    program = machine.path("/usr/local/bin/my-probe")
    program.write_text(f"#!/bin/sh\necho {shlex.quote(json.dumps(claims))}\n")
    program.chmod(0o755)
    reader.follow(PROBE, files=["/root-of-probe/example.json", f"{CHECKS}-probe/site.yaml"])
    shown = json.loads(machine.run(f"nodeguard check --checks {CHECKS}-probe -o json", ANY))
    findings = {finding["check"]: finding["message"] for finding in shown["findings"]}
    assert "licence server answers after 4 s" in findings["probe-warning"]
    assert findings["copy-slow"].endswith("copies 52.1 GB/s")


def test_a_fleet_is_simulated(reader: Reader) -> None:
    (reader.machine.clone / "policy.yaml").write_text("defaultMode: enforce\n")
    # The sizes of the page take minutes.
    names = {
        "nodeguard simulate": "nodeguard simulate --nodes 64 --days 1",
        "nodeguard simulate --nodes 64 --days 1 --scenario": "nodeguard simulate --scenario",
        "--nodes 512": "--nodes 64",
        "--scenario all": "--scenario half-fleet",
    }
    outputs = reader.follow(SIMULATE, names=names)
    assert outputs["nodeguard simulate"].startswith("simulation - 64 nodes, 1 day, seed 1\n")
    of_policy = outputs["nodeguard simulate --policy policy.yaml --nodes 512"]
    assert "policy as in the file" in joined(of_policy)
    settings = json.loads(outputs["nodeguard simulate -o json"])["settings"]
    assert settings == {"nodes": 64, "days": 1.0, "seed": 1}
    assert "result as wanted" in joined(outputs["nodeguard simulate --scenario cordoned-leaf"])
    [result] = json.loads(outputs["nodeguard simulate --scenario all --policy policy.yaml -o json"])
    assert (result["scenario"], result["as_expected"]) == ("half-fleet", True)


def test_a_policy_is_tested_on_the_history_of_an_aggregator(reader: Reader) -> None:
    machine, clone = reader.machine, reader.machine.clone
    [aggregator] = [
        line
        for block in blocks(SLURM)
        for _, line in block.command_lines()
        if line.startswith("nodeguard aggregator")
    ]
    options, _, _ = aggregator.removeprefix("nodeguard aggregator ").partition(" --history")
    # An aggregator of an earlier page may have left a fault of this node, which would end here.
    machine.run("rm -rf /var/lib/nodeguard /var/lib/nodeguard-aggregator; mkdir /var/lib/nodeguard")
    reader.follow(BACKTEST, "Keep a history", names={"…": options})
    [settings] = [block.text for block in blocks(SLURM) if block.language == "yaml"]
    (clone / "agent.yaml").write_text(settings)
    reader.start("agent", "nodeguard agent --config agent.yaml --from fixtures/gpu-off-bus --speed 60")
    for name in ("now", "next", "policy"):
        (clone / f"{name}.yaml").write_text("defaultMode: enforce\n")
    (clone / "bundles").mkdir()
    (clone / "bundles/gpu-1").symlink_to("../fixtures/gpu-off-bus")
    in_pod = "kubectl exec -i -n nodeguard deploy/nodeguard-aggregator --"
    first = f"{in_pod} nodeguard backtest --policy /dev/stdin /var/lib/nodeguard < policy.yaml"
    begin = "BACKTEST  1 node in "
    until(lambda: "marks 1" in machine.run(replaced(first, {in_pod: ""}), (0, 3)), every=0.5)
    # A fault counts once something is recorded after its first report.
    until(lambda: "1 ongoing" in machine.run("nodeguard report /var/lib/nodeguard/history.sqlite"), every=0.5)
    reader.close("agent", "aggregator")
    machine.run("cp /var/lib/nodeguard/history.sqlite history-a.sqlite; cp history-a.sqlite history-b.sqlite")
    check = "nodeguard policy check next.yaml --current now.yaml --against history-a.sqlite"
    in_use = "/etc/nodeguard/policy.yaml"
    piped = f"{in_pod} nodeguard policy check - --current {in_use} --against /var/lib/nodeguard < policy.yaml"
    names, codes = {in_pod: "", in_use: "now.yaml"}, dict.fromkeys((check, piped), (0, 1))
    outputs = reader.follow(BACKTEST, "Play it through a policy", names=names, codes=codes)
    assert "now.yaml marks 1; next.yaml marks 1." in joined(outputs.pop(check))
    assert "now.yaml marks 1; standard input marks 1." in joined(outputs.pop(piped))
    heads = [output.partition("\n")[0] for output in outputs.values()]
    assert [head.startswith(begin) for head in heads] == [True, True, True]
    expected = ["/dev/stdin marks 1.", "now.yaml marks 1; next.yaml marks 1.", "policy.yaml marks 1."]
    assert [head.partition(": ")[2] for head in heads] == expected
    machine.run("cp history-a.sqlite history.sqlite")
    page = "docs/tasks/report-availability.md"
    reports = list(reader.follow(page, leave_out="incidents (clear|withdraw)").values())
    assert "gpu-lost" in reports[0]
    assert json.loads(reports[2])["total"]["ongoing"] == 1


def test_a_fault_is_rehearsed_on_one_node(reader: Reader) -> None:
    with node(reader, "--allow-injection"):
        shows = {
            f"nodeguard inject gpu-lost --target gpu/0000:3b:00 {word}": ""
            for word in ("--dry-run", "--for 10m")
        }
        outputs = reader.follow(REHEARSE, "2. Inject", names=GPU, leave_out="^kubectl", shows=shows)
        printed = example(REHEARSE, "injected gpu-lost").replace("3b:00", "1b:00")
        shown = outputs["nodeguard inject gpu-lost --target gpu/0000:3b:00 --for 10m"]
        assert without_times(shown) == without_times(printed)
        would = outputs["nodeguard inject gpu-lost --target gpu/0000:3b:00 --dry-run"]
        assert would.startswith("would inject gpu-lost on GPU 0000:1b:00 for 10 min: fatal")
        assert "gpu-lost" in reader.machine.run("nodeguard status --agent", ANY)
        ended = reader.follow(REHEARSE, "4. End it")
        assert "gpu-lost" in ended["nodeguard inject --list"]
        assert ended["nodeguard inject --clear 1"].startswith("ended 1 injected fault")
        assert reader.machine.run("nodeguard inject --list") == "injected    none\n"


def without_times(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", joined(text))


def test_the_agent_detaches_from_gpus_and_attaches_again(reader: Reader) -> None:
    with node(reader):
        outputs = reader.follow(RESET, names=GPU, leave_out="^kubectl|--node")
        assert len(outputs) == 3
        detached = [output for command, output in outputs.items() if " detach " in command]
        assert ["all GPUs" in detached[0], "gpu/0000:1b:00" in detached[1]] == [True, True]
        assert outputs["nodeguard gpus attach"] == "The agent reads the GPUs again.\n"


def test_the_commands_of_the_agents_page_answer(reader: Reader) -> None:
    with node(reader):
        outputs = reader.follow(AGENT, "Status")
        assert " is healthy." in outputs["nodeguard status --agent"]
        assert "\nnvml: read " in outputs["nodeguard status --agent --values"]
        assert outputs["nodeguard gpus status"] == "detached    none: the agent reads all GPUs\n"
        clear = "nodeguard clear gpu-lost gpu/0000:3b:00"
        cleared = reader.follow(AGENT, "Clear a finding", names=GPU, codes={clear: (3,)})
        assert cleared == {clear: "nodeguard clear: gpu-lost on GPU 0000:1b:00 is not active\n"}


def test_the_doctor_checks_the_installation(reader: Reader) -> None:
    outputs = reader.follow(DOCTOR, "On a node", codes={"nodeguard doctor": (0, 1, 2)}, leave_out="^kubectl")
    shown = joined(outputs["nodeguard doctor"])
    assert re.match(r"nodeguard doctor: [1-9]\d* failed, ", shown), shown
    assert "failed agent: no agent answers at /run/nodeguard/agent.sock" in shown
    assert "fix: if it does not run: systemctl start nodeguard-agent" in shown
