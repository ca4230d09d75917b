"""Formats of drivers that are ignored: their number, a sample, and formats of a release that no table has.

    python -m scripts.driver_formats                        # the number, as `make lint` prints it
    python -m scripts.driver_formats --sample 40 --seed 7   # a sample to review, each with its reason
    python -m scripts.driver_formats --source DIR [TAG…]    # what the tables lack of NVIDIA's driver
    python -m scripts.driver_formats --linux DIR…           # what the tables lack of Linux

`--source` names a clone of github.com/NVIDIA/open-gpu-kernel-modules; its format strings are read from git.
`--linux` names source trees of the kernel.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from nodeguard.catalog.tables import load_log_patterns
from nodeguard.config.yaml_document import read_yaml
from scripts.driver_formats_source import CONVERSION, FAILURE, failures_of_kernel_code, formats_of_code

ROOT = Path(__file__).resolve().parent.parent
LINES = ROOT / "checks" / "tables" / "kmsg-formats.yaml"
NVIDIA = ROOT / "scripts" / "driver_formats_nvidia.yaml"
HOST = ROOT / "scripts" / "driver_formats_host.yaml"


class Format(Struct, forbid_unknown_fields=True, rename={"versions": "in"}):
    """A format: a rendered line, its versions, and its event with the target, or why it is ignored."""

    line: str
    versions: str
    event: str = ""
    target: str = ""
    ignored: str = ""


class Source(Struct, forbid_unknown_fields=True):
    """The formats of one source file, as rendered lines."""

    driver: str
    file: str
    formats: tuple[Format, ...]


class Few(Struct, forbid_unknown_fields=True):
    """An event with fewer than five formats, and the reason."""

    event: str
    reason: str


class LineTable(Struct, forbid_unknown_fields=True):
    """The table of rendered lines, kmsg-formats.yaml."""

    sources: tuple[Source, ...]
    few: tuple[Few, ...]


class LeftOut(Struct, forbid_unknown_fields=True):
    """Files that the table leaves out, as an expression of their paths, with the number of their formats."""

    files: str
    formats: int
    failures: int
    reason: str


class Ignored(Struct, forbid_unknown_fields=True):
    """Formats of one file that are ignored for one reason."""

    reason: str
    formats: tuple[str, ...]


class IgnoredSource(Struct, forbid_unknown_fields=True):
    """The ignored formats of one source file. beginning: what a driver of Linux prints before a format."""

    file: str
    ignored: tuple[Ignored, ...]
    beginning: str = ""


class NvidiaTable(Struct, forbid_unknown_fields=True):
    """The table of the NVIDIA driver's ignored formats, driver_formats_nvidia.yaml."""

    left_out: tuple[LeftOut, ...]
    sources: tuple[IgnoredSource, ...]


class HostTable(Struct, forbid_unknown_fields=True):
    """The table of ignored formats of Linux, driver_formats_host.yaml."""

    sources: tuple[IgnoredSource, ...]


def read_lines() -> LineTable:
    """Return the table of rendered lines."""
    return read_yaml(LINES, LineTable)[1]


def read_nvidia() -> NvidiaTable:
    """Return the table of the NVIDIA driver."""
    return read_yaml(NVIDIA, NvidiaTable)[1]


def read_host() -> HostTable:
    """Return the table of Linux."""
    return read_yaml(HOST, HostTable)[1]


def ignored_failures() -> Iterator[tuple[str, str, str]]:
    """Yield file, format and reason of each ignored format with a word of a failure."""
    for source in read_lines().sources:
        for row in source.formats:
            if row.ignored and FAILURE.search(row.line):
                yield source.file, row.line, row.ignored
    for ignored in (*read_host().sources, *read_nvidia().sources):
        for group in ignored.ignored:
            for text in filter(FAILURE.search, group.formats):
                yield ignored.file, text, group.reason


_PATHS = ("src/nvidia/", "kernel-open/")


def formats_of_release(repository: Path, tag: str) -> dict[str, str]:
    """Return the file of each format that a release of the driver prints at the level of errors."""
    names = _git(repository, "ls-tree", "-r", "--name-only", tag).splitlines()
    files = [name for name in names if name.startswith(_PATHS) and name.endswith((".c", ".h"))]
    return {
        text: file for file in files for text in formats_of_code(_git(repository, "show", f"{tag}:{file}"))
    }


def _git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, capture_output=True, check=True).stdout.decode(errors="replace")


def formats_without_row(formats: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield file and text of the formats that neither table has. formats: file by text."""
    table = read_nvidia()
    rows = {text for source in table.sources for group in source.ignored for text in group.formats}
    left_out = re.compile("|".join(f"(?:{group.files})" for group in table.left_out))
    lines = "\0".join(
        row.line for source in read_lines().sources for row in source.formats if "nvidia" in source.file
    )
    for text, file in formats.items():
        if text not in rows and not left_out.search(file) and not _expression(text).search(lines):
            yield file, text


def _expression(text: str) -> re.Pattern[str]:
    """Return the expression of the lines that a format becomes."""
    return re.compile("[^\0]{0,80}?".join(map(re.escape, CONVERSION.split(text))))


def kernel_formats_without_row(trees: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield file and text of the formats of Linux that become no event and have no row in either table.

    trees: source trees of releases. The files are those of the table of rendered lines.
    """
    sources = {source.file: source for source in read_host().sources}
    lines = "\0".join(row.line for source in read_lines().sources for row in source.formats)
    patterns = [(pattern.signal, re.compile(pattern.pattern)) for pattern in load_log_patterns(LINES.parent)]
    files = (source.file for source in read_lines().sources if source.file.startswith("linux "))
    for file in dict.fromkeys(name.removeprefix("linux ") for name in files):
        source = sources.get(file, IgnoredSource(file, ()))
        rows = {text for group in source.ignored for text in group.formats}
        codes = [(tree / file).read_text(errors="replace") for tree in trees if (tree / file).is_file()]
        for text in dict.fromkeys(text for code in codes for text in failures_of_kernel_code(code)):
            rendered = render(text)
            claimed = (
                next((signal for signal, expression in patterns if expression.match(line)), "")
                for line in (source.beginning + rendered, rendered)
            )
            if (
                text not in rows
                and not any(claimed)
                and not _expression(text.partition("\n")[0]).search(lines)
            ):
                yield file, text


def render(text: str) -> str:
    """Return a line that a format becomes."""
    return CONVERSION.sub(lambda conversion: "0x1" if "#" in conversion[0] else "1", text)


def main(arguments: Iterable[str] | None = None) -> int:
    """Print what the arguments ask for; return 1 if a format has no row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="print N ignored formats")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument("--source", type=Path, help="a clone of NVIDIA's open GPU kernel modules")
    parser.add_argument("--linux", type=Path, nargs="+", metavar="DIR", help="source trees of Linux")
    parser.add_argument("tags", nargs="*", metavar="TAG", help="releases to read (default: HEAD)")
    options = parser.parse_args(arguments)
    failures = list(ignored_failures())
    if options.sample:
        for file, text, reason in random.Random(options.seed).sample(failures, options.sample):
            print(f"{file.rpartition('/')[2]}: {text!r}\n    ignored: {reason}")
        return 0
    if options.linux:
        missing = set(kernel_formats_without_row(options.linux))
        print("".join(f"{file}: {text!r}\n" for file, text in sorted(missing)), end="")
        return 1 if missing else 0
    if options.source:
        missing = {
            row
            for tag in options.tags or ["HEAD"]
            for row in formats_without_row(formats_of_release(options.source, tag))
        }
        print("".join(f"{file}: {text!r}\n" for file, text in sorted(missing)), end="")
        return 1 if missing else 0
    reasons = len({(file, reason) for file, _, reason in failures})
    left_out = sum(group.failures for group in read_nvidia().left_out)
    print(
        f"{len(failures)} formats of drivers with a word of a failure are ignored, for {reasons} reasons in "
        f"their files; {left_out} more are in files that are left out"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
