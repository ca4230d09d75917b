"""Lines of the kernel log in nodeguard explain."""

from __future__ import annotations

from io import StringIO

import pytest

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.main import main
from nodeguard.cli.render.log_line import LogLineOutput, explain_log_line
from nodeguard.cli.render.xid import CodeOutput
from nodeguard.model.catalogue import Catalogue

CATALOGUE: Catalogue = load_catalogue()[0]
XID_79 = "NVRM: Xid (PCI:0000:c3:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def test_every_line_that_the_catalogue_knows_is_explained() -> None:
    for pattern in CATALOGUE.patterns:
        output = explain_log_line(CATALOGUE, pattern.example)
        if pattern.signal in {"gpu.xid.line", "nvswitch.sxid.line"}:
            assert isinstance(output, CodeOutput), pattern.id
        else:
            assert isinstance(output, LogLineOutput), pattern.id
            assert (output.event, output.description) == (pattern.signal, pattern.description)


@pytest.mark.parametrize(
    ("line", "checks"),
    [
        ("NVRM: GPU 0000:c3:00.0: GPU has fallen off the bus.", ("gpu-lost",)),
        ("nvme nvme0: I/O 221 QID 12 timeout, aborting", ("disk-timeout", "disk-timeout-once")),
        ("nfs: server 10.0.0.1 OK", ()),
        ("nvidia-nvlink: Unregistered Nvlink Core, major device number 509", ()),
    ],
)
def test_a_line_names_the_checks_that_count_it(line: str, checks: tuple[str, ...]) -> None:
    output = explain_log_line(CATALOGUE, line)
    assert isinstance(output, LogLineOutput)
    assert output.event
    assert output.checks == checks


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[12345.678901] ",
        "[    1.000000] ",
        "[Fri Nov 28 10:00:00 2026] ",
        "[  123.456][T1234] ",
        "Nov 28 10:00:00 gpu-1 kernel: ",
        "Nov 28 10:00:00 gpu-1 kernel: [  123.456] ",
        "2026-11-28T10:00:00.123456+00:00 gpu-1 kernel: ",
        "2026-11-28T10:00:00,123456+00:00 ",
        "<3>[12345.678] ",
        "3,1234,5678901,-;",
        "kern  :err   : [Fri Nov 28 10:00:00 2026] ",
        "kern  :warn  : 2026-11-28T10:00:00,123456+00:00 ",
    ],
)
def test_a_line_may_have_the_prefix_of_a_log(prefix: str) -> None:
    output = explain_log_line(CATALOGUE, f"  {prefix}{XID_79}\n")
    assert isinstance(output, CodeOutput)
    assert (output.kind, output.code, output.checks) == ("xid", 79, ("gpu-lost",))


def test_the_first_line_with_a_meaning_counts() -> None:
    killed = "Out of memory: Killed process 71 (python3) total-vm:1kB, anon-rss:1kB, file-rss:0kB"
    lines = f"usb 1-1: new device\n{killed}\n{XID_79}"
    assert isinstance(explain_log_line(CATALOGUE, lines), CodeOutput)
    output = explain_log_line(CATALOGUE, killed)
    assert isinstance(output, LogLineOutput)
    assert output.event == ""
    assert explain_log_line(CATALOGUE, "usb 1-1: new device") is None


def test_a_line_is_printed_with_health_and_title_of_its_checks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "[12.5] nvme nvme0: I/O 221 QID 12 timeout, aborting"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Kernel log - the disk did not answer a request in time\n")
    assert "checks        disk-timeout (suspect): Disk commands time out\n" in text
    assert "              disk-timeout-once (ok): Disk command timed out\n" in text


def test_an_event_on_which_no_check_fires_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """It may be no recovery, such as that of a driver that found no GPU, or of a table that is being written."""
    assert main(["explain", "NVRM: The NVIDIA probe routine failed for 1 device(s)."]) == 0
    assert "No check fires on its event, driver.probe_failed. Most such" in capsys.readouterr().out


def test_a_text_may_come_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", StringIO(f"usb 1-1: new device\n{XID_79}\n"))
    assert main(["explain", "-"]) == 0
    assert capsys.readouterr().out.startswith("Xid 79 - ")
