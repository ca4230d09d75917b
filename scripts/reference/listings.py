"""Reference pages that list what the code defines: commands, metrics, signals, log messages, decisions."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from nodeguard.catalog.catalogue import load_builtin
from nodeguard.cli.commands.man import ENVIRONMENT, EXIT_CODES
from nodeguard.cli.parser_tree import Option, ParsedCommand, read_parsers
from nodeguard.model.check import EventOccurred
from nodeguard.pipeline.signal_registry import all_signals
from scripts.reference.markdown import Lines, code, page, table

ROOT = Path(__file__).parents[2]

# Levels of log messages, by method of a logger.
LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "error": "error", "exception": "error"}


def cli() -> str:
    """All commands with their arguments and options, exit codes and environment variables."""
    lines = [line for command in read_parsers() for line in _command(command)]
    tables = (
        *("## Exit codes", "", *table(("code", "meaning"), EXIT_CODES)),
        *(
            "## Environment",
            "",
            *table(("variable", "meaning"), ((code(name), text) for name, text in ENVIRONMENT)),
        ),
    )
    return page("Command line", *tables, *lines)


def _command(command: ParsedCommand) -> Lines:
    yield from (
        f"{'#' * (len(command.words) + 1)} nodeguard {' '.join(command.words)}",
        "",
        command.description,
        "",
    )
    options = [option for option in command.options if option.flags != ("-h", "--help")]
    if options:
        yield from table(("argument", "meaning"), ((_usage(option), _about(option)) for option in options))
    if command.epilog:
        yield from (command.epilog, "")
    if command.examples:
        yield from ("Examples:", "", *(f"    {example}" for example in command.examples), "")
    for part in command.parts:
        yield from _command(part)


def _usage(option: Option) -> str:
    value = "" if option.choices and option.flags else option.value
    return code(f"{', '.join(option.flags)} {value}".strip())


def _about(option: Option) -> str:
    choices = ", ".join(code(choice) for choice in option.choices)
    return f"{option.about}: {choices}" if choices else option.about


def metric_pages() -> tuple[tuple[str, str, str], ...]:
    """Return the metrics of agent, `nodeguard check` and aggregator: title, how to read them, and text."""
    from tests.alerts import pages  # noqa: PLC0415 - the aggregator of the tests serves every family

    return (
        ("Agent", "Port 9434, `/metrics`.", pages.agent_page()),
        ("nodeguard check -o prometheus", "For the textfile collector of node_exporter.", pages.check_page()),
        (
            "Aggregator",
            "Port 9435, `/metrics`; OpenMetrics on request.",
            asyncio.run(pages.aggregator_page()),
        ),
    )


def metrics() -> str:
    """All metric families of agent, `nodeguard check` and aggregator, with type and labels."""
    lines = []
    for title, port, text in metric_pages():
        rows = (
            (code(name), kind, ", ".join(map(code, labels)), about)
            for name, kind, labels, about in families(text)
        )
        lines += [f"## {title}", "", port, "", *table(("metric", "type", "labels", "meaning"), rows)]
    about = (
        "A new series of a counter with labels is 0 for its first two minutes:",
        "`increase()` then counts its first event. Scrape at least once a minute.",
        "Xids from before the start of an agent are counted at once: they may have been counted before.",
    )
    return page("Metrics", *about, "", *lines)


def families(text: str) -> Iterator[tuple[str, str, list[str], str]]:
    """Yield name, type, labels and help of each metric family of a page in Prometheus' text format."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE))
    for name, about in re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE):
        samples = re.findall(rf"^{name}(?:_bucket|_sum|_count)?\{{(.*)\}} ", text, re.MULTILINE)
        labels = {label for sample in samples for label in re.findall(r'(\w+)="', sample)} - {"le"}
        yield name, kinds[name], sorted(labels), about


def signals() -> str:
    """All signals by source, with unit, fields and the checks that use them."""
    catalogue = load_builtin(all_signals)
    users: dict[str, list[str]] = {}
    for check in catalogue.checks:
        for leaf in check.leaves():
            name = leaf.event if isinstance(leaf, EventOccurred) else leaf.signal
            users.setdefault(name, []).append(check.id)
    entries = sorted(
        all_signals(catalogue.patterns).values(), key=lambda signal: (signal.source, signal.name)
    )
    lines = [f"{len(entries)} signals, by the source that reads them.", ""]
    for source, group in groupby(entries, key=lambda signal: signal.source):
        rows = (
            (
                code(signal.name),
                signal.kind,
                signal.unit or ", ".join(map(code, signal.fields)),
                signal.description,
                ", ".join(
                    f"[{check}](checks/{check}.md)" for check in sorted(set(users.get(signal.name, ())))
                ),
            )
            for signal in group
        )
        lines += [f"## {source}", "", *table(("signal", "kind", "unit or fields", "meaning", "checks"), rows)]
    return page("Signals", *lines)


def log_events() -> str:
    """All log messages with level, module and fields."""
    paths = sorted((ROOT / "nodeguard").rglob("*.py"))
    rows = sorted({event for path in paths for event in _log_calls(path)})
    about = "A line of the log has `time`, `level`, `logger`, `msg` and the fields of its message."
    lines = [about, ""]
    for program, group in groupby(rows, key=itemgetter(0)):
        lines += [f"## {program}", "", *table(("message", "level", "fields"), (row[1:] for row in group))]
    return page("Log events", *lines)


def _log_calls(path: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yield package, message, level and fields of each call of a logger."""
    package = path.relative_to(ROOT / "nodeguard").parts[0].removesuffix(".py")
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name() | ast.Attribute() as logger, attr=method),
                args=[message, *_],
            ) if method in LEVELS and ast.unparse(logger).lower().endswith(("log", "logger")):
                fields = {key for word in node.keywords if word.arg == "extra" for key in _keys(word.value)}
                for text in _texts(message, tree):
                    yield package, text, LEVELS[method], ", ".join(map(code, sorted(fields)))


def _texts(message: ast.expr, tree: ast.Module) -> Lines:
    """Yield the text of a message: a constant, the value of a name, or the first elements of pairs."""
    if isinstance(message, ast.Constant):
        yield str(message.value)
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                if isinstance(message, ast.Name) and name == message.id:
                    yield text
            case ast.Tuple(elts=[ast.Constant(value=str(text)), ast.Call() | ast.Dict()]):
                if isinstance(message, ast.Name) and message.id == "message":
                    yield text


def _keys(value: ast.expr) -> Lines:
    for node in ast.walk(value):
        if isinstance(node, ast.Dict):
            yield from (str(key.value) for key in node.keys if isinstance(key, ast.Constant))


AREAS = ("Reading and checks", "Agent", "Fleet", "Aggregator", "Project")

# The second line of a decision, as in `Status: accepted. Area: Fleet.`
_STATUS = re.compile(
    r"# (?P<title>.+)\n\nStatus: (?P<status>accepted|superseded by .+)\. Area: (?P<area>.+)\.\n"
)


def decisions() -> str:
    """The list of design decisions, by area. Raises ValueError for a record without a status and an area."""
    links: dict[str, list[str]] = {area: [] for area in AREAS}
    for file in sorted((ROOT / "docs" / "decisions").glob("0*.md")):
        record = _STATUS.match(file.read_text("utf-8"))
        if record is None or record["area"] not in AREAS:
            raise ValueError(f"{file}: write 'Status: accepted. Area: …' below the title, with {AREAS}")
        remark = "" if record["status"] == "accepted" else " (superseded)"
        links[record["area"]].append(f"- [{record['title']}]({file.name}){remark}")
    text = "Context, choice and consequence of each decision, in half a page. Some numbers were never used."
    sections = [line for area in AREAS for line in ("", f"## {area}", "", *links[area])]
    return page("Design decisions", text, *sections)
