"""nodeguard explain: what a check, an Xid or an SXid means, and what to do; and why a node is as it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.options import add_checks
from nodeguard.cli.render.check_text import check_facts
from nodeguard.cli.render.terminal import StyledLine, StyledText, field_line, lines_to_object, print_lines
from nodeguard.cli.render.xid import sxid_lines, xid_lines
from nodeguard.cli.streams import print_output
from nodeguard.cli.usage import OK, ArgumentParser, UsageError, did_you_mean
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import Check


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    # Words may stand on both sides of an option.
    options = _parser().parse_intermixed_args(arguments)
    if options.what[0].lower() in {"node", "incident", "domain"}:
        from nodeguard.cli.commands.explain_fleet import explain_fleet  # noqa: PLC0415 - checks are explained without

        explain_fleet(options, arguments)
        return OK
    catalogue, _ = load_catalogue(options.checks)
    explain, name = _meant(" ".join(options.what))
    if options.format == "json":
        import msgspec  # noqa: PLC0415 - one format of two

        told = _named(catalogue, name) if explain is _check else lines_to_object(explain(catalogue, name))
        print_output(msgspec.json.format(msgspec.json.encode(told), indent=2).decode())
    else:
        print_lines(list(explain(catalogue, name)))
    return OK


_CODE = re.compile(r"(s?xid)[\s:#]*(.*)", re.IGNORECASE)
_Explain = Callable[[Catalogue, str], Iterator[StyledLine]]


def _meant(words: str) -> tuple[_Explain, str]:
    """What explains some words, and the name among them: `XID 79`, `xid79` and `xid 79` mean the same.

    Raises UsageError.
    """
    code = _CODE.fullmatch(words)
    if code is not None:
        kind, number = code[1].lower(), code[2]
        if not number:
            raise UsageError(f"'{words}' needs a number: write nodeguard explain {kind} 79")
        return (sxid_lines if kind == "sxid" else xid_lines), number
    if words.isdigit():
        raise UsageError(f"'{words}' is a number alone: write nodeguard explain xid {words}, or sxid {words}")
    name = words.removeprefix("check ")
    if " " in name:
        raise UsageError(
            f"'{words}' is nothing to explain: write CHECK, xid N, sxid N, node NAME, domain NAME or "
            "incident NAME"
        )
    return _check, name


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="nodeguard explain",
        description="Says what a check, an Xid or an SXid means and what to do. With node, domain or "
        "incident: all that the aggregator knows of it, and what its marks wait for; with domain alone, what "
        "nodes share.",
    )
    what = "CHECK | xid N | sxid N | node NAME | domain [NAME] | incident NAME"
    parser.add_argument("what", nargs="+", metavar=what, help="what to explain")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="how to say it")
    parser.add_argument("--socket", metavar="PATH", help="where the aggregator listens")
    add_checks(parser)
    return parser


def _named(catalogue: Catalogue, name: str) -> Check:
    """The check of a name. Raises UsageError where there is none."""
    name = name.lower()
    check = next((one for one in catalogue.checks if one.id == name), None)
    if check is None:
        if name in catalogue.disabled:
            raise UsageError(f"'{name}' is disabled by {catalogue.disabled[name]}")
        meant = did_you_mean(name, [one.id for one in catalogue.checks])
        raise UsageError(f"'{name}' is no check: {meant}see nodeguard checks")
    return check


def _check(catalogue: Catalogue, name: str) -> Iterator[StyledLine]:
    check = _named(catalogue, name)
    yield StyledLine((StyledText(check.id, "strong"), StyledText(" - ")), check.title, "strong")
    yield StyledLine()
    for paragraph in check.explanation.split("\n\n"):
        yield StyledLine(text=" ".join(paragraph.split()))
    yield StyledLine()
    yield from (field_line(name, text) for name, text in check_facts(check))
