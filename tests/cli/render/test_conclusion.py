"""What a verdict means for the node, in every state; and the errors that applications cause."""

from __future__ import annotations

from typing import Any

import pytest

from nodeguard.cli.render.conclusion import application_errors, conclusion, error_text
from nodeguard.model.finding import Action, DataStatus, Evidence, Finding, Health, ReadFailure, Verdict
from nodeguard.model.target import NODE
from tests.judge.judged_node import finding

NOON = 1_793_534_400.0  # 2026-11-01 12:00:00 UTC
GPU = "gpu/0000:43:00"
UNREAD = ReadFailure("nvml", (NODE,), "nvml", "time-out")


def evidence(at: float = NOON, **fields: Any) -> Evidence:
    return Evidence("kmsg", "NVRM: Xid", at, **{"meaning": "Illegal memory access (Xid 31)", **fields})


def failed_program(*errors: Evidence, **fields: Any) -> Finding:
    return finding(
        "gpu-xid-workload", GPU, health=Health.OK, action=Action.RESTART_WORKLOAD, evidence=errors, **fields
    )


def verdict(*findings: Finding, **more: Any) -> Verdict:
    health = findings[0].health if findings else Health.OK
    return Verdict(health, DataStatus.FRESH, findings, **{"evaluated": 10, **more})


def fault(health: Health) -> Finding:
    return finding("a", NODE, health=health, action=Action.REBOOT_NODE, title="Broken")


PROGRAMS = failed_program(evidence(pid=1, count=3), evidence(pid=2))


@pytest.mark.parametrize(
    ("of", "selection", "text"),
    [
        (verdict(), "", "n is healthy."),
        (
            verdict(informational=(PROGRAMS,)),
            "",
            "n is healthy. 4 lines of application errors are in the kernel log.",
        ),
        (
            verdict(informational=(failed_program(evidence(pid=1)),)),
            "",
            "n is healthy. 1 line of application errors is in the kernel log.",
        ),
        (
            verdict(informational=(failed_program(Evidence("nvml", "Xid 31", NOON)),)),
            "",
            "n is healthy. 1 event of application errors is known.",
        ),
        (verdict(informational=(finding(health=Health.OK, action=Action.NONE),)), "", "n is healthy."),
        (verdict(), "the checks of gpu-xid, nvlink", "n passed the checks of gpu-xid, nvlink."),
        (
            verdict(read_failures=(UNREAD,)),
            "",
            "no fault was found on n, but not all of it could be read. Not read: nvml.",
        ),
        (verdict(fault(Health.WARNING)), "", "n can take work. Broken: the node. Reboot the node."),
        (
            verdict(fault(Health.WARNING), informational=(PROGRAMS,)),
            "",
            (
                "n can take work. 4 lines of application errors are in the kernel log. "
                "Broken: the node. Reboot the node."
            ),
        ),
        (
            verdict(fault(Health.SUSPECT), informational=(PROGRAMS,)),
            "",
            "n should take no work that spans nodes. Broken: the node. Reboot the node.",
        ),
        (
            verdict(fault(Health.FATAL), informational=(PROGRAMS,), read_failures=(UNREAD,)),
            "",
            "n should take no work. Broken: the node. Reboot the node. Not read: nvml.",
        ),
        (verdict(evaluated=0), "", "the health of n is unknown: no check could be evaluated."),
        (
            verdict(fault(Health.WARNING), evaluated=0),
            "",
            "the health of n is unknown: no check could be evaluated. Broken: the node. Reboot the node.",
        ),
    ],
)
def test_the_conclusion_of_every_state(of: Verdict, selection: str, text: str) -> None:
    assert conclusion("n", of, selection=selection) == text


def test_an_unknown_state_has_its_reason() -> None:
    text = conclusion("n", verdict(evaluated=0, read_failures=(UNREAD,)), "no GPU")
    assert text == "the health of n is unknown: no GPU. Not read: nvml."


def test_an_application_error_has_its_time_process_and_meaning() -> None:
    [error] = application_errors(failed_program(evidence(process="python3", pid=41000)))
    assert error_text(error, NOON) == "12:00:00 python3 (pid 41000): illegal memory access (Xid 31)"
    tomorrow = error_text(error, NOON + 86_400)
    assert tomorrow == "2026-11-01 12:00:00 python3 (pid 41000): illegal memory access (Xid 31)"


def test_the_meaning_of_an_application_error_keeps_an_abbreviation() -> None:
    [error] = application_errors(failed_program(evidence(meaning="GPU memory was freed")))
    assert error_text(error, NOON) == "12:00:00: GPU memory was freed"


def test_an_application_error_names_its_pod_and_its_count() -> None:
    killed = evidence(process="train", pid=7, workload="pod 1f", meaning="killed", count=12)
    [error] = application_errors(failed_program(killed))
    assert error_text(error, NOON) == "12:00:00 train (pid 7), pod 1f: killed, the last of 12"


def test_what_follows_from_the_error_of_a_process_is_left_out() -> None:
    first, then = evidence(NOON, pid=7), evidence(NOON + 1, pid=7, meaning="Channel closed (Xid 43)")
    assert [error.evidence for error in application_errors(failed_program(then, first))] == [first]
    other = evidence(NOON + 2, pid=8)
    assert [error.evidence for error in application_errors(failed_program(other, then, first))] == [
        first,
        other,
    ]


def test_an_error_without_a_process_follows_from_one_shortly_before() -> None:
    named, first = evidence(NOON, pid=7), evidence(NOON + 4)
    assert [error.evidence for error in application_errors(failed_program(first, named))] == [named]
    later = evidence(NOON + 60, meaning="")
    errors = application_errors(failed_program(first, later))
    assert [error_text(error, NOON) for error in errors] == [
        "12:00:04: illegal memory access (Xid 31)",
        "12:01:00: NVRM: Xid",
    ]


def test_two_processes_have_two_errors_at_the_same_time() -> None:
    errors = application_errors(failed_program(evidence(pid=7), evidence(pid=8)))
    assert [error.evidence.pid for error in errors] == [7, 8]
