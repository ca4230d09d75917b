from __future__ import annotations

from typing import Any

import pytest

from nodeguard.cli.render.conclusion import conclusion
from nodeguard.cli.render.terminal import CHECK, StyledLine, view_lines
from nodeguard.cli.render.verdict import VerdictText, verdict_view
from nodeguard.model.finding import (
    Action,
    CounterTotal,
    DataStatus,
    Evidence,
    Finding,
    Health,
    PassedFamily,
    ReadFailure,
    Verdict,
)
from nodeguard.model.instant import Instant
from nodeguard.model.target import NODE
from tests.judge.judged_node import finding

NOW = Instant(wall=1_800_000_000.0, mono=1000.0, boot_id="boot")
GPU = "gpu/0000:3b:00"
WORDS = {"gpu.recovery_action = 4": "drain and reset"}


def verdict(*findings: Finding, **more: Any) -> Verdict:
    health = findings[0].health if findings else Health.OK
    return Verdict(health, DataStatus.FRESH, findings, **{"evaluated": 10, **more})


def plain(line: StyledLine) -> str:
    return "".join(words.text for words in line.head) + line.text


def printed(of: Verdict, **more: Any) -> list[str]:
    return lines(VerdictText(conclusion("node-1", of), of, NOW, WORDS), **more)


def lines(text: VerdictText, **more: Any) -> list[str]:
    return [plain(line) for line in view_lines(verdict_view(text, **more), CHECK)]


def first(of: Verdict) -> str:
    return printed(of)[0]


def lost(**fields: Any) -> Finding:
    words = {
        "health": Health.FATAL,
        "action": Action.REBOOT_NODE,
        "title": "GPU lost",
        "since": NOW.wall - 125,
    }
    return finding("gpu-lost", GPU, **{**words, **fields})


# The first line.


def test_nothing_wrong() -> None:
    assert first(verdict()) == "OK  node-1 is healthy."


def test_the_inventory_follows_the_first_line() -> None:
    text = VerdictText("node-1 is healthy.", verdict(), NOW, WORDS, inventory="8x NVIDIA H100, driver 580")
    assert lines(text)[1] == "  machine   8x NVIDIA H100, driver 580"
    assert len(lines(text, quiet=True)) == 1


def test_a_check_of_the_site_is_explained_with_its_directory() -> None:
    text = VerdictText(
        "node-1 should take no work.", verdict(lost()), NOW, WORDS, checks_option="--checks site"
    )
    assert lines(text)[-1] == "  see       nodeguard explain gpu-lost --checks site"


def test_the_first_line_has_the_worst_finding_and_the_action() -> None:
    assert (
        first(verdict(lost()))
        == "FATAL  node-1 should take no work. GPU lost: GPU 0000:3b:00. Reboot the node."
    )
    assert first(verdict(lost(), finding())) == (
        "FATAL  node-1 should take no work. 1 fatal, 1 suspect. Worst: GPU lost: GPU 0000:3b:00. Reboot the node."
    )
    assert (
        first(verdict(finding(title="Clock adrift")))
        == "SUSPECT  node-1 should take no work that spans nodes. Clock adrift: the node."
    )


def test_the_first_line_names_unread_sources() -> None:
    silent = tuple(ReadFailure(source, (NODE,), source, "why") for source in ("nvml", "kmsg", "nvml"))
    assert (
        first(verdict(read_failures=silent))
        == "OK  no fault was found on node-1, but not all of it could be read. Not read: nvml, kmsg."
    )


def test_without_an_evaluated_check_the_health_is_unknown() -> None:
    assert (
        first(verdict(evaluated=0))
        == "UNKNOWN  the health of node-1 is unknown: no check could be evaluated."
    )


@pytest.mark.parametrize("action", Action)
def test_every_action_is_shown(action: Action) -> None:
    assert first(verdict(lost(action=action))).endswith(".")


# A finding.


def test_a_finding_in_full() -> None:
    evidence = (Evidence("kmsg", "NVRM: Xid 79\nmore", NOW.wall, 3),)
    item = lost(
        message="It is gone", remedy="Drain it.", evidence=evidence, component="GPU-1", note="seen once"
    )
    assert printed(verdict(item))[1:] == [
        "",
        "FATAL  GPU lost - GPU 0000:3b:00",
        "  message   It is gone",
        "  component GPU-1",
        "  since     2027-01-15 07:57:55 UTC, 2 min 5 s ago; seen once",
        "  evidence  kmsg: NVRM: Xid 79 more (3 times)",
        "  action    Drain it.",
        "  see       nodeguard explain gpu-lost",
    ]


def field(name: str, item: Finding) -> list[str]:
    return [line.split(maxsplit=1)[1] for line in printed(verdict(item)) if line.startswith(f"  {name} ")]


@pytest.mark.parametrize(
    ("since", "ago"), [(0.0, "just now"), (-30.0, "just now"), (5.0, "5 s ago"), (3600 * 49, "2 d 1 h ago")]
)
def test_since_when(since: float, ago: str) -> None:
    assert field("since", lost(since=NOW.wall - since))[0].endswith(f", {ago}")


def test_the_processes_that_met_a_fault_are_named_once() -> None:
    evidence = Evidence("kmsg", "NVRM: Xid", NOW.wall, process="python3", pid=7, workload="job 12")
    unnamed = Evidence("kmsg", "NVRM: Xid again", NOW.wall, pid=8)
    found = lost(evidence=(evidence, evidence, unnamed, Evidence("nvml", "gone", NOW.wall)))
    assert field("affected", found) == ["python3 (pid 7), job 12; process (pid 8)"]
    assert field("affected", lost()) == []


def test_the_remedy_is_shown_and_without_one_the_action() -> None:
    assert field("action", lost(remedy="Drain the node, then reboot it.")) == [
        "Drain the node, then reboot it."
    ]
    assert field("action", lost(remedy="")) == ["Reboot the node."]


def test_many_slots_are_counted() -> None:
    slots = [f"{GPU}/nvlink/{link}" for link in range(18)]
    assert field("targets", lost(targets=tuple(slots[:4])))[0].count("NVLink") == 4
    assert field("targets", lost(targets=tuple(slots)))[0].endswith("GPU 0000:3b:00 NVLink 3 and 14 more")


def test_the_first_evidence_is_shown() -> None:
    evidence = tuple(Evidence("nvml", f"gpu.a = {at}", float(at)) for at in range(5))
    expected = ["nvml: gpu.a = 0", "nvml: gpu.a = 1", "nvml: gpu.a = 2"]
    assert field("evidence", lost(evidence=evidence)) == expected


def test_evidence_that_is_not_shown_is_counted() -> None:
    evidence = tuple(Evidence("nvml", f"gpu.a = {at}", float(at)) for at in range(5))
    assert "            and 2 more" in printed(verdict(lost(evidence=evidence)))
    assert " more" not in "".join(printed(verdict(lost(evidence=evidence[:3]))))


def test_a_message_of_several_lines_is_shown_whole() -> None:
    text = "NVRM: The NVIDIA GPU 0000:52:00.0\nNVRM: (PCI ID: 10de:2331) has\nNVRM: fallen off the bus."
    [seen] = field("evidence", lost(evidence=(Evidence("kmsg", text, 1.0),)))
    assert seen == "kmsg: NVRM: The NVIDIA GPU 0000:52:00.0 (PCI ID: 10de:2331) has fallen off the bus."


def test_a_code_is_shown_with_what_it_means() -> None:
    evidence = (Evidence("nvml", "gpu.recovery_action = 4", 1.0), Evidence("nvml", "gpu.a = 4", 1.0))
    assert field("evidence", lost(evidence=evidence)) == [
        "nvml: gpu.recovery_action = 4 (drain and reset)",
        "nvml: gpu.a = 4",
    ]


def test_empty_evidence_is_no_crash() -> None:
    assert field("evidence", lost(evidence=(Evidence("nvml", "", 1.0),))) == ["nvml: "]
    assert field("evidence", lost(evidence=())) == []


# The rest.


def test_information_counters_and_passed_checks() -> None:
    informational = finding(
        "gpu-xid-workload",
        GPU,
        title="Xid of an application",
        message="Xid 13",
        evidence=(Evidence("kmsg", "x", 1.0, 7),),
    )
    whole = verdict(
        informational=(informational,),
        counter_totals=(
            CounterTotal("gpu.pcie.replays", GPU, 12),
            CounterTotal("port.symbol_error", "port/mlx5_0/1", 3.0),
        ),
        passed=(
            PassedFamily("clock", 1, {NODE: 1}),
            PassedFamily("gpu-memory", 14, {"gpu": 8, NODE: 1}),
            PassedFamily("nvlink", 3, {"nvlink": 1, "gpu": 1}),
        ),
    )
    assert printed(whole, verbose=True) == [
        "OK  node-1 is healthy.",
        "",
        "info        GPU 0000:3b:00: Xid 13, 7 times (Xid of an application)",
        "",
        "counter     GPU 0000:3b:00: pcie.replays 12 in total; --duration shows whether it rises",
        "counter     port mlx5_0/1: symbol_error 3 in total; --duration shows whether it rises",
        "",
        "passed      clock: 1 check",
        "passed      gpu-memory: 14 checks, 8 GPUs",
        "passed      nvlink: 3 checks, 1 GPU, 1 NVLink",
    ]
    assert printed(whole)[3:] == ["", "18 checks passed; -v lists them"]
    assert printed(whole, quiet=True) == ["OK  node-1 is healthy."]


@pytest.mark.parametrize(
    ("target", "health", "is_program_first"),
    [
        (NODE, Health.WARNING, True),
        ("gpu/0000:5d:00", Health.WARNING, True),
        (GPU, Health.WARNING, False),
        (f"{GPU}/nvlink/3", Health.WARNING, False),
        (NODE, Health.SUSPECT, False),
        (NODE, Health.FATAL, False),
    ],
)
def test_a_warning_elsewhere_comes_after_the_errors_of_programs(
    target: str, health: Health, *, is_program_first: bool
) -> None:
    killed = Evidence("kmsg", "NVRM: Xid", NOW.wall - 900, pid=7, meaning="Illegal memory access (Xid 31)")
    program = finding(
        "gpu-xid-workload", GPU, health=Health.OK, action=Action.RESTART_WORKLOAD, evidence=(killed,)
    )
    broken = finding("a", target, health=health, title="Broken")
    text = printed(verdict(broken, informational=(program,)))
    [error] = [number for number, line in enumerate(text) if line.startswith("application")]
    [section] = [number for number, line in enumerate(text) if " Broken - " in line]
    assert (error < section) == is_program_first
    assert ("No check finds a fault" in " ".join(text)) == (GPU not in target)


@pytest.mark.parametrize(
    ("target", "health", "is_suspected"),
    [
        (GPU, Health.FATAL, True),
        (f"{GPU}/nvlink/3", Health.SUSPECT, True),
        (GPU, Health.WARNING, False),
        ("gpu/0000:5d:00", Health.FATAL, False),
        (NODE, Health.FATAL, False),
    ],
)
def test_an_error_of_a_program_on_a_suspected_gpu_names_the_fault_first(
    target: str, health: Health, *, is_suspected: bool
) -> None:
    killed = Evidence("kmsg", "NVRM: Xid", NOW.wall - 900, pid=7, meaning="Illegal memory access (Xid 31)")
    program = finding(
        "gpu-xid-workload", GPU, health=Health.OK, action=Action.RESTART_WORKLOAD, evidence=(killed,)
    )
    text = " ".join(
        " ".join(printed(verdict(finding("a", target, health=health), informational=(program,)))).split()
    )
    assert ("A check finds a fault of GPU 0" in text) == is_suspected


@pytest.mark.parametrize(
    ("item", "line"),
    [
        (ReadFailure("nvml", (NODE,), "nvml", "it hangs"), "not read    nvml: it hangs"),
        (
            ReadFailure("memory", (NODE,), "memory.total", "denied"),
            "not read    memory: memory.total: denied",
        ),
        (
            ReadFailure("nvml", (GPU,), "gpu.name", "lost"),
            "not read    nvml of GPU 0000:3b:00: gpu.name: lost",
        ),
        (
            ReadFailure("pci", tuple(f"disk/sd{letter}" for letter in "abcdefgh"), "pci.x", "EINVAL"),
            "not read    pci of disk sda, disk sdb, disk sdc, disk sdd and 4 more: pci.x: EINVAL",
        ),
    ],
)
def test_unread_sources_are_shown_with_quiet_too(item: ReadFailure, line: str) -> None:
    for quiet in (False, True):
        assert printed(verdict(read_failures=(item,)), quiet=quiet)[-2:] == ["", line]
