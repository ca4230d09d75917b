"""The project's language: words that may not come back, names of variables, and one class for each name."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.paths import ROOT

# Word or phrase, as a regular expression, and the word to use. docs/glossary.md explains the words to use.
BANNED = {
    r"told|tells? (?:of|that)|telling": "report, message, log, output",
    r"heard|hears?": "receive, last report",
    r"said|saying": "message, output",
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
}
WORDS = re.compile(r"(?<![\w-])(?:" + "|".join(BANNED) + r")(?![\w-])", re.IGNORECASE)

# Names that do not say what they hold.
VARIABLES = frozenset({"one", "each", "told", "said", "known", "heard", "given", "kept", "why"})

# Terms of other projects that contain a banned word: a virtual machine's guest, a system call's name.
ALLOWED = re.compile(
    r"guest (?:driver|operating|OS|agent|memory|machine)|(?:in|of) (?:a|the) guest\b|ill-formed"
    r"|standalone|stand-alone|illumos",
    re.IGNORECASE,
)
SUFFIXES = {".py", ".yaml", ".md", ".toml", ".service", ".sh"}
# The tables of kernel messages and of NVIDIA's codes are in the words of their sources.
FOREIGN = ("checks/tables/", "fixtures/generated/", "fixtures/recorded/", "docs/reference/")
SELF = "tests/test_language.py"

# Areas in which old words are left: maximum of lines with a banned word, and of variables. Only ever lower these.
UNFINISHED: dict[str, tuple[int, int]] = {
    "CHANGELOG.md": (17, 0),
    "CONTRIBUTING.md": (4, 0),
    "README.md": (14, 0),
    "bench": (63, 70),
    "checks": (55, 0),
    "daemonset": (12, 0),
    "docs": (198, 0),
    "fixtures": (37, 0),
    "nodeguard/agent": (9, 0),
    "nodeguard/aggregator": (33, 2),
    "nodeguard/backtest": (3, 0),
    "nodeguard/bundle": (3, 0),
    "nodeguard/cli": (6, 0),
    "nodeguard/derive": (3, 0),
    "nodeguard/fleet": (400, 219),
    "nodeguard/fleet_api": (20, 0),
    "nodeguard/judge": (1, 0),
    "nodeguard/kube": (2, 0),
    "nodeguard/model": (3, 0),
    "nodeguard/simulate": (5, 0),
    "nodeguard/sources": (1, 0),
    "nodeguard/wire": (2, 0),
    "nodeguard/worker": (4, 0),
    "pyproject.toml": (1, 0),
    "scripts": (33, 10),
    "tests/agent": (190, 98),
    "tests/aggregator": (417, 121),
    "tests/alerts": (21, 7),
    "tests/backtest": (40, 23),
    "tests/bundle": (161, 43),
    "tests/catalog": (10, 0),
    "tests/cli": (46, 11),
    "tests/conftest.py": (1, 0),
    "tests/controlplane": (65, 23),
    "tests/daemonset": (28, 41),
    "tests/derive": (91, 0),
    "tests/docs": (1, 7),
    "tests/e2e": (208, 117),
    "tests/fleet": (217, 185),
    "tests/fleet_api": (6, 0),
    "tests/fuse.py": (1, 0),
    "tests/fuzz": (21, 5),
    "tests/judge": (92, 0),
    "tests/kube": (70, 8),
    "tests/leftovers.py": (1, 1),
    "tests/local": (13, 4),
    "tests/model": (5, 2),
    "tests/nvml_double": (2, 0),
    "tests/pipeline": (23, 14),
    "tests/sources": (179, 110),
    "tests/test_leftovers.py": (0, 1),
    "tests/test_observations_page.py": (0, 4),
    "tests/tools.py": (1, 0),
    "tests/waiting.py": (2, 0),
    "tests/wire": (7, 11),
    "tests/worker": (66, 22),
}


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
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
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


def area(path: Path) -> str:
    """The package of a file, or its folder or name outside of packages."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[:2]) if parts[0] in {"nodeguard", "tests"} else parts[0]


def counts() -> tuple[Counter[str], Counter[str], list[str]]:
    """Lines with a banned word and variables with an empty name, by area, and all of them as text."""
    lines, variables, places = Counter[str](), Counter[str](), list[str]()
    for path in files():
        text = list(banned(path))
        lines[area(path)] += len(text)
        if path.suffix == ".py":
            names = [
                f"{path.relative_to(ROOT)}:{line}: variable {name}"
                for name, line in bindings(ast.parse(path.read_text("utf-8")))
                if name in VARIABLES
            ]
            variables[area(path)] += len(names)
            text += names
        if area(path) not in UNFINISHED:
            places += text
    return lines, variables, places


def test_text_uses_the_words_of_the_glossary() -> None:
    """An area is free of banned words, or has no more of them than UNFINISHED allows."""
    lines, variables, places = counts()
    assert not places, "\n".join(places[:200])
    more = {
        name: (lines[name], variables[name])
        for name, (most_lines, most_variables) in UNFINISHED.items()
        if lines[name] > most_lines or variables[name] > most_variables
    }
    assert not more, "use the words of docs/glossary.md in what you change"


def test_no_two_public_classes_have_one_name() -> None:
    places = defaultdict(list)
    for path in files("nodeguard"):
        if path.suffix == ".py":
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(str(path.relative_to(ROOT)))
    assert not {name: found for name, found in places.items() if len(found) > 1}
