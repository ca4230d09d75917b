"""The project's language: words that may not come back, names of variables, and one class for each name."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.paths import ROOT

# Word or phrase, as a regular expression, and the word to use. docs/glossary.md explains the words to use.
BANNED = {
    r"told|tells? (?:of|that)|telling": "report, message, log, output",
    r"heard|hears?": "receive, last report",
    r"said|saying|says? so": "message, output, report, show, name",
    r"befalls?|befell": "happens to, affects",
    r"anew": "again",
    r"whose": "of which, with",
    r"giv(?:en?|es|ing) back|hand(?:ed|s|ing)? back": "release",
    r"lemons?": "repeat offender",
    r"ledgers?": "budget",
    r"ballots?|witness(?:es)?": "votes, vote collector",
    r"rosters?": "fleet state",
    r"blam(?:e|ed|es|ing)": "diagnosis, degraded domain",
    r"misfires?|in doubt": "false alarm, suspected check",
    r"held checks?|checks? (?:is|are) held": "suppressed check",
    r"strangers?|guests?": "unauthenticated client, connection",
    r"sick|ill": "unhealthy",
    r"mend(?:ed|s|ing)?|put right": "fix",
    r"anybody|somebody|nobody": "a client, an operator, no client",
    r"bears? out|borne out": "confirms",
    r"knowledge": "data status",
    r"lately": "recent",
    r"moments?": "time, timestamp",
    r"thereof|therein|whatsoever|henceforth": "plain words",
    r"so long": "for this time",
    r"of all but": "of every other",
    r"alone": "only",
    r"roll-outs?": "rollout",
}
WORDS = re.compile(r"(?<![\w-])(?:" + "|".join(BANNED) + r")(?![\w-])", re.IGNORECASE)

# Names that do not say what they hold.
VARIABLES = frozenset({"one", "each", "told", "said", "known", "heard", "given", "kept", "why"})
# Such a name, and what follows it wherever it is bound: only files with a match are parsed.
BINDING = re.compile(rf"(?<![\w.])(?:{'|'.join(sorted(VARIABLES))})\s*(?:[-+*/%&|^@<>=:,)\]#\\]|in\b)")
CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)

# Terms of other projects that contain a banned word: a virtual machine's guest, a message of the kernel.
ALLOWED = re.compile(
    r"guest (?:driver|operating|OS|agent|memory|machine)|(?:in|of) (?:a|the) guest\b|ill-formed"
    r"|standalone|stand-alone|illumos|nobody cared",
    re.IGNORECASE,
)
SUFFIXES = {".py", ".yaml", ".md", ".toml", ".service", ".sh"}
# The tables of kernel messages and of NVIDIA's codes are in the words of their sources.
FOREIGN = (
    "checks/tables/",
    "scripts/driver_formats_host.yaml",
    "scripts/driver_formats_nvidia.yaml",
    "fixtures/generated/",
    "fixtures/recorded/",
    "docs/reference/",
)
SELF = "tests/test_language.py"


def files(*folders: str) -> list[Path]:
    """Tracked text files of the project, or of some of its folders."""
    names = subprocess.run(
        ["git", "ls-files", "--", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [
        ROOT / name
        for name in names
        if Path(name).suffix in SUFFIXES
        and not name.startswith(FOREIGN)
        and name != SELF
        and (ROOT / name).is_file()
    ]


def words_of(text: str) -> str:
    """Text in which identifiers are separate words, so that `given_back` is found as `given back`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text.replace("_", " "))


def banned(path: Path) -> Iterator[str]:
    """Lines of a file that hold a banned word."""
    text = path.read_text("utf-8")
    if not WORDS.search(words_of(text)):
        return
    for number, line in enumerate(text.splitlines(), 1):
        match = WORDS.search(ALLOWED.sub("", words_of(line)))
        if match:
            use = next(use for word, use in BANNED.items() if re.fullmatch(word, match[0], re.IGNORECASE))
            yield f"{path.relative_to(ROOT)}:{number}: '{match[0]}': write {use}"


def bindings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Names of variables and parameters, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno


def test_text_uses_the_words_of_the_glossary() -> None:
    places = [place for path in files() for place in banned(path)]
    assert not places, "\n".join(places[:200])


def test_variables_are_nouns_of_the_domain() -> None:
    places = [
        f"{path.relative_to(ROOT)}:{line}: variable {name}"
        for path in files()
        if path.suffix == ".py"
        if BINDING.search(text := path.read_text("utf-8"))
        for name, line in bindings(ast.parse(text))
        if name in VARIABLES
    ]
    assert not places, "\n".join(places[:200])


def test_no_two_public_classes_have_one_name() -> None:
    places = defaultdict(list)
    for path in files("nodeguard"):
        if path.suffix == ".py":
            for name in CLASS.findall(path.read_text("utf-8")):
                places[name].append(str(path.relative_to(ROOT)))
    assert not {name: modules for name, modules in places.items() if len(modules) > 1}
