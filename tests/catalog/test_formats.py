"""The table of formats: each line of a driver or of the kernel becomes the event that the table states, or none."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path

import pytest

from nodeguard.catalog.tables import load_log_patterns
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.model.check import SIGN_EVENTS, EventOccurred
from nodeguard.sources.kmsg import KmsgSource
from nodeguard.sources.machine import LogRecords
from scripts.driver_formats import (
    IgnoredSource,
    Source,
    kernel_formats_without_row,
    main,
    read_host,
    read_lines,
    read_nvidia,
    render,
)
from scripts.driver_formats_source import FAILURE, failures_of_kernel_code, formats_of_code
from tests.paths import ROOT
from tests.sources.fake_machine import FakeMachine

TABLES = ROOT / "checks" / "tables"
PATTERNS = load_log_patterns(TABLES)
SOURCE = KmsgSource(PATTERNS)

TABLE = read_lines()
FORMATS = [item for source in TABLE.sources for item in source.formats]


class OneRecord(FakeMachine):
    """A machine with one new record of the kernel in its log."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def log(self, within: float = math.inf) -> LogRecords:
        escaped = self.text.replace("\n", "\\x0a")
        return LogRecords((f"3,17,5000000,-;{escaped}\n",), 0)


def events(text: str) -> list[tuple[str, str]]:
    """Return the event and the target that a line becomes."""
    observations = SOURCE.read(OneRecord(text))
    return [
        (event.signal, observation.target) for observation in observations for event in observation.events
    ]


@pytest.mark.parametrize("source", TABLE.sources, ids=lambda source: source.file.rpartition(" ")[2])
def test_a_line_becomes_exactly_its_event_or_none(source: Source) -> None:
    for item in source.formats:
        assert events(item.line) == ([(item.event, item.target)] if item.event else []), item.line


def test_a_format_has_an_event_or_a_reason_to_be_ignored() -> None:
    for item in FORMATS:
        assert bool(item.event) != bool(item.ignored), item.line
        assert bool(item.event) == bool(item.target), item.line
        assert item.line, item
        assert item.versions, item.line


def test_a_line_and_a_file_stand_once_in_the_table() -> None:
    assert [line for line, times in Counter(item.line for item in FORMATS).items() if times > 1] == []
    files = Counter((source.driver, source.file) for source in TABLE.sources)
    assert [file for file, times in files.items() if times > 1] == []


def test_each_event_has_five_formats_unless_the_table_states_why_not() -> None:
    formats = Counter(item.event for item in FORMATS if item.event)
    wanted = {pattern.signal for pattern in PATTERNS if pattern.signal}
    assert wanted == set(formats)
    assert {event for event, times in formats.items() if times < 5} == {item.event for item in TABLE.few}
    assert all(item.reason for item in TABLE.few)


def test_each_pattern_matches_a_line_of_the_table() -> None:
    matched = {
        next((pattern.id for pattern in PATTERNS if re.match(pattern.pattern, item.line)), "")
        for item in FORMATS
    }
    assert [pattern.id for pattern in PATTERNS if pattern.id not in matched] == []


# Kinds of slots that an event can be moved to, by the kind that its line names.
KINDS = {
    "pci": {"pci", "gpu", "port", "nvswitch"},
    "disk": {"disk", "fs"},
    "node": {"node", "dimm"},
}
# Lines that are decoded first, and signs that an earlier event is over.
NOT_CHECKED = {
    "gpu.xid.line",
    "nvswitch.sxid.line",
    "cpu.machine_check.line",
    *SIGN_EVENTS,
    "driver.load_begun",
    "driver.probe_failed",
    "driver.unload",
    "disk.removed",
}


def test_each_event_reaches_a_check_at_its_slot() -> None:
    targets: dict[str, set[str]] = {}
    ends = set()
    for check in load_catalogue()[0].checks:
        for leaf in check.leaves():
            if isinstance(leaf, EventOccurred):
                targets.setdefault(leaf.event, set()).update(check.targets)
                ends.add(leaf.until)
    for item in FORMATS:
        if item.event and item.event not in NOT_CHECKED | ends:
            kind = item.target.partition("/")[0]
            assert KINDS.get(kind, {kind}) & targets[item.event], item.line


# Beginnings of a line of the NVIDIA driver, before a format that has none of its own.
BEGINNINGS = (
    "NVRM: function_GH100: ",
    "NVRM: GPU0 function_GH100: ",
    "NVRM function_GH100: ",
    "NVRM: GPU 0000:3b:00.0: ",
)


@pytest.mark.parametrize("source", read_nvidia().sources, ids=lambda source: source.file.rpartition("/")[2])
def test_an_ignored_format_of_the_nvidia_driver_becomes_no_event(source: IgnoredSource) -> None:
    for group in source.ignored:
        assert group.reason
        for text in group.formats:
            rendered = render(text)
            for beginning in ("",) if text.startswith("NVRM") else BEGINNINGS:
                assert events(beginning + rendered) == [], text


@pytest.mark.parametrize("source", read_host().sources, ids=lambda source: source.file)
def test_an_ignored_format_of_linux_becomes_no_event(source: IgnoredSource) -> None:
    for group in source.ignored:
        assert group.reason
        for text in group.formats:
            assert FAILURE.search(text), text
            assert events(source.beginning + render(text)) == [], text


def test_a_file_of_linux_is_in_both_tables_and_a_format_of_it_once() -> None:
    files = [source.file for source in read_host().sources]
    assert sorted(set(files)) == sorted(files)
    assert {f"linux {file}" for file in files} <= {source.file for source in TABLE.sources}
    for source in read_host().sources:
        texts = [text for group in source.ignored for text in group.formats]
        assert sorted(set(texts)) == sorted(texts), source.file


def test_a_file_of_the_nvidia_driver_and_a_format_of_it_stand_once() -> None:
    table = read_nvidia()
    assert [
        file for file, times in Counter(source.file for source in table.sources).items() if times > 1
    ] == []
    for source in table.sources:
        texts = Counter(text for group in source.ignored for text in group.formats)
        assert [text for text, times in texts.items() if times > 1] == [], source.file


def test_the_formats_of_code_are_those_that_a_release_prints_as_errors() -> None:
    code = """
        NV_PRINTF(LEVEL_ERROR, "a reset of " NvU64_fmtx " failed, "  /* "not this" */
                  "status %s\\n", address, nvstatusToString("neither (this)"));
        NV_PRINTF(LEVEL_INFO, "information\\n");
        nv_printf(NV_DBG_ERRORS, "NVRM: \\"%s\\"\\n", name);
        NV_PRINTF(LEVEL_ERROR, "%s\\n", text);
        portDbgPrintf("NVRM: GPU at %04x\\n", bus);
        NV_PRINTF(LEVEL_ERROR, "NVRM: Xid (%s): %d\\n", gpu, xid);
    """
    assert list(formats_of_code(code)) == ["a reset of  failed, status %s", 'NVRM: "%s"', "NVRM: GPU at %04x"]


def test_the_failures_of_kernel_code_are_those_that_it_prints_as_warnings() -> None:
    code = """
        #define DMERR(fmt) printk(KERN_ERR "lost %s", fmt)
        pr_err("disk %pg lost " "for %d ms\\n", disk, /* "not this" */ wait);
        dev_warn(dev, "reset failed: %d\\n", error);
        dev_info(dev, "reset done\\n");
        printk(KERN_INFO "no error here\\n");
        seq_printf(file, "errors lost %d\\n", lost);
        pr_err("quiet words only\\n");
    """
    assert list(failures_of_kernel_code(code)) == ["disk %pg lost for %d ms", "reset failed: %d"]


def test_a_format_of_linux_without_event_and_row_is_listed(tmp_path: Path) -> None:
    code = tmp_path / "drivers/nvme/host/pci.c"
    code.parent.mkdir(parents=True)
    ignored = read_host().sources[0].ignored[0].formats[0]
    code.write_text(
        f'dev_warn(d, "I/O %d QID %d timeout, aborting"); dev_err(d, "{ignored}"); dev_err(d, "all is lost");'
    )
    assert list(kernel_formats_without_row([tmp_path])) == [("drivers/nvme/host/pci.c", "all is lost")]


def test_the_number_and_a_sample_of_ignored_formats_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert re.match(
        r"\d+ formats of drivers with a word of a failure are ignored, for \d+ ", capsys.readouterr().out
    )
    samples = []
    for _ in range(2):
        assert main(["--sample", "3", "--seed", "7"]) == 0
        samples.append(capsys.readouterr().out)
    assert samples[0] == samples[1]
    assert samples[0].count("    ignored: ") == 3
