"""Formats of drivers that are ignored: their number, a sample, and formats of a release that no table has.

    python -m scripts.driver_formats                        # the number, as `make lint` prints it
    python -m scripts.driver_formats --sample 40 --seed 7   # a sample to review, each with its reason
    python -m scripts.driver_formats --source DIR [TAG…]    # what the tables lack of a release

`--source` names a clone of github.com/NVIDIA/open-gpu-kernel-modules; its format strings are read from git.
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

from nodeguard.config.yaml_document import read_yaml

ROOT = Path(__file__).resolve().parent.parent
LINES = ROOT / "checks" / "tables" / "kmsg-formats.yaml"
NVIDIA = ROOT / "scripts" / "driver_formats_nvidia.yaml"

# Words of a failure: an ignored format with one of them needs a reason of its own.
FAILURE = re.compile(r"fail|fatal|error|timeout|halt|reset|lost", re.IGNORECASE)


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
    """The ignored formats of one source file."""

    file: str
    ignored: tuple[Ignored, ...]


class NvidiaTable(Struct, forbid_unknown_fields=True):
    """The table of the NVIDIA driver's ignored formats, driver_formats_nvidia.yaml."""

    left_out: tuple[LeftOut, ...]
    sources: tuple[IgnoredSource, ...]


def read_lines() -> LineTable:
    """Return the table of rendered lines."""
    return read_yaml(LINES, LineTable)[1]


def read_nvidia() -> NvidiaTable:
    """Return the table of the NVIDIA driver."""
    return read_yaml(NVIDIA, NvidiaTable)[1]


def ignored_failures() -> Iterator[tuple[str, str, str]]:
    """Yield file, format and reason of each ignored format with a word of a failure."""
    for source in read_lines().sources:
        for row in source.formats:
            if row.ignored and FAILURE.search(row.line):
                yield source.file, row.line, row.ignored
    for nvidia in read_nvidia().sources:
        for group in nvidia.ignored:
            for text in filter(FAILURE.search, group.formats):
                yield nvidia.file, text, group.reason


# Calls that print, and the level at which a release build prints them to the kernel log.
_CALL = re.compile(
    r"\b(NV_PRINTF(?:_EX|_COND)?|nv_printf|NV_DEV_PRINTF(?:_STATUS)?|portDbgPrintf|printk|pr_err)\s*\("
)
_LEVEL = re.compile(r"\s*(?:\w+\s*,\s*)?(?:[^,]*,\s*)?(LEVEL_\w+|NV_DBG_\w+|KERN_\w+)")
_PRINTED = frozenset({"LEVEL_ERROR", "LEVEL_FATAL", "NV_DBG_ERRORS", "KERN_ERR"})
_WITHOUT_LEVEL = frozenset({"portDbgPrintf", "pr_err"})
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
# The strings of a format follow each other, with macros such as PRIu64 between them.
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"(?:\s*(?:[A-Za-z_]\w*\s*)?"(?:[^"\\]|\\.)*")*')
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_CONVERSION = re.compile(r"%[-+0 #]*(?:\*|\d+)?(?:\.\d+)?(?:ll|l|h|z)?[a-zA-Z]?")
# An Xid is read with its own tables.
_XID = "NVRM: Xid ("
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


def formats_of_code(code: str) -> Iterator[str]:
    """Yield the formats that a file in C prints at the level of errors, without those of Xids."""
    for call in _CALL.finditer(code):
        arguments = _COMMENT.sub("", _arguments(code, call.end()))
        level = _LEVEL.match(arguments)
        strings = _STRINGS.search(arguments)
        if strings and (level[1] in _PRINTED if level else call[1] in _WITHOUT_LEVEL):
            text = (
                "".join(_STRING.findall(strings[0]))
                .encode()
                .decode("unicode_escape", "replace")
                .strip("\n")
                .rstrip()
            )
            if _CONVERSION.sub("", text).strip() and not text.startswith(_XID):
                yield text


def _arguments(code: str, start: int) -> str:
    """Return the arguments of a call that begin at a position of the code."""
    depth, at, in_string = 1, start, False
    while depth and at < len(code):
        character = code[at]
        if in_string and character == "\\":
            at += 1
        elif character == '"':
            in_string = not in_string
        elif not in_string:
            depth += {"(": 1, ")": -1}.get(character, 0)
        at += 1
    return code[start : at - 1]


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
    return re.compile("[^\0]{0,80}?".join(map(re.escape, _CONVERSION.split(text))))


def main(arguments: Iterable[str] | None = None) -> int:
    """Print what the arguments ask for; return 1 if a format has no row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="print N ignored formats")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument("--source", type=Path, help="a clone of NVIDIA's open GPU kernel modules")
    parser.add_argument("tags", nargs="*", metavar="TAG", help="releases to read (default: HEAD)")
    options = parser.parse_args(arguments)
    failures = list(ignored_failures())
    if options.sample:
        for file, text, reason in random.Random(options.seed).sample(failures, options.sample):
            print(f"{file.rpartition('/')[2]}: {text!r}\n    ignored: {reason}")
        return 0
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
