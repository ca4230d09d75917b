"""The pages of the documentation, the commands that they print, and the names that they mention."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from textwrap import dedent
from typing import Any, NamedTuple

import yaml

from scripts.reference.pages import PAGES as GENERATED
from tests.paths import ROOT

# The pages that people write, without the records of past decisions.
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    *(
        page
        for path in sorted((ROOT / "docs").rglob("*.md"))
        if path.parent.name != "decisions" and (page := str(path.relative_to(ROOT))) not in GENERATED
    ),
)

# A block is one of commands where its first line begins with one of these, or each command with a dollar sign.
PROGRAMS = frozenset(
    {
        *("nodeguard", "/opt/nodeguard/bin/nodeguard", "/opt/nodeguard/bin/pip", "python3", "make"),
        *("kubectl", "helm", "docker", "systemctl", "journalctl", "install", "openssl", "curl"),
        *("echo", "cat", "ln", "my-probe", "mv", "sqlite3", "cp", "rm", "chown", "jq", "yq"),
    }
)


class Command(NamedTuple):
    """A command that a page prints: its words, without redirections and comments."""

    page: str
    line: int
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


class Block(NamedTuple):
    """A block of a page. section: the nearest heading. language: of its fence; empty for commands and output."""

    line: int
    section: str
    language: str
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return its lines as a text that ends with a line break."""
        return "".join(f"{line}\n" for line in self.lines)

    def command_lines(self) -> Iterator[tuple[int, str]]:
        """The command lines of the block, each with its line number; continued lines are joined."""
        marked = any(line.startswith("$ ") for line in self.lines)
        if self.language or (not marked and self.lines[0].split(" ", 1)[0] not in PROGRAMS):
            return
        joined, begin = "", 0
        for number, line in enumerate(self.lines, self.line):
            if marked and not joined and not line.startswith("$ "):
                continue
            begin = begin if joined else number
            joined += line.removeprefix("$ ").removesuffix("\\")
            if not line.endswith("\\"):
                yield begin, joined
                joined = ""


def text(page: str) -> str:
    """Return the text of a page."""
    return (ROOT / page).read_text("utf-8")


@cache
def commands() -> tuple[Command, ...]:
    """Return every command in the blocks of the pages."""
    return tuple(
        Command(page, line, words)
        for page in PAGES
        for line, printed in _printed(text(page))
        for words in _split(printed)
    )


def command_lines(page: str) -> list[tuple[int, str]]:
    """Return the command lines in the blocks of a page, each with its line number."""
    return list(_printed(text(page)))


def inline(page: str) -> list[tuple[str, ...]]:
    """Return the nodeguard commands that the sentences of a page mention."""
    return [tuple(shlex.split(found)) for found in re.findall(r"`(nodeguard [^`]+)`", text(page))]


def blocks(page: str, section: str = "") -> list[Block]:
    """Return the blocks of a page, or those below one of its headings."""
    found = [block for block in _blocks(text(page).splitlines()) if section in {"", block.section}]
    assert found, f"{page} has no block below '{section}'"
    return found


def example(page: str, begin: str) -> str:
    """Return the block of a page that begins with a text."""
    [found] = [block for block in blocks(page) if block.text.startswith(begin)]
    return found.text


def printed_lines(page: str) -> set[str]:
    """Return the command lines that a page prints, in blocks and in sentences, without comments."""
    content = text(page)
    sentences = re.sub(r"^ *```.*?```$", "", content, flags=re.MULTILINE | re.DOTALL)
    lines = [line for _, line in _printed(content)] + re.findall(r"`([^`]+)`", sentences)
    return {" ".join(re.sub(r"\s# .*", "", line).split()) for line in lines}


def yaml_blocks(page: str) -> list[Any]:
    """Return the YAML blocks of a page, parsed."""
    return [
        yaml.safe_load(block)
        for block in re.findall(r"^```yaml\n(.*?)^```$", text(page), re.MULTILINE | re.DOTALL)
    ]


def _printed(page: str) -> Iterator[tuple[int, str]]:
    """The command lines of a page, each with its line number."""
    for block in _blocks(page.splitlines()):
        yield from block.command_lines()


def _blocks(lines: list[str]) -> Iterator[Block]:
    """The blocks of a page: indented, or fenced."""
    block: list[str] = []
    language, section, begin = "", "", 0
    in_fence = False
    for number, line in enumerate([*lines, ""], 1):
        mark = re.match(r" *```(\w*)", line)
        is_indented = not in_fence and line.startswith("    ")
        if block and (mark or not (in_fence or is_indented)):
            yield Block(begin, section, language, _dedented(block))
            block = []
        if mark:
            in_fence = not in_fence
            language = mark[1] if in_fence else ""
        elif in_fence or is_indented:
            begin = begin if block else number
            block.append(line)
        elif heading := re.match(r"#+ (.*)", line):
            section = heading[1]


def _dedented(lines: list[str]) -> tuple[str, ...]:
    return tuple(dedent("\n".join(lines)).splitlines())


def _split(line: str) -> Iterator[tuple[str, ...]]:
    """The commands of a line, which pipes divide."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>")
    lexer.whitespace_split = True
    words: list[str] = []
    redirected = False
    for word in lexer:
        if word == "|":
            yield tuple(words)
            words = []
        elif set(word) <= set("<>"):
            redirected = True
        elif redirected:
            redirected = False
        elif word != "…":
            words.append(word)
    if words:
        yield tuple(words)
