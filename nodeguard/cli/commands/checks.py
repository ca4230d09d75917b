"""nodeguard checks: all checks by family, and validation of a site's own."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence

from nodeguard.cli.check_catalogue import load_catalogue, selected_checks
from nodeguard.cli.options import add_checks, add_family, add_output
from nodeguard.cli.render.terminal import StyledLine, StyledText, format_lines
from nodeguard.cli.streams import document_or_text, print_output
from nodeguard.cli.usage import OK, ArgumentParser
from nodeguard.fleet_api.text.check import check_facts
from nodeguard.fleet_api.text.wording import count_noun
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import Check
from nodeguard.model.finding import Health


def run(options: Namespace) -> int:
    """Run the command; returns its exit code. Raises UsageError for an invalid file."""
    catalogue, _ = load_catalogue(options.checks)
    checks = selected_checks(catalogue, options)
    if options.output == "markdown":
        print_output("\n".join(markdown(checks)))
        return OK
    table = _table(catalogue, checks, show_disabled=not options.family and not options.health)
    print_output(document_or_text(checks, options.output, lambda: format_lines(list(table))))
    return OK


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard checks",
        description="List the checks by family. With --checks DIR, or - for a file on standard input, "
        "validate your own checks and list the result.",
        examples=("nodeguard checks --family nvlink", "nodeguard checks --checks checks.d"),
        epilog="nodeguard get checks prints them as a table with filters, nodeguard explain CHECK one of "
        "them.",
    )
    add_checks(parser)
    add_family(parser)
    healths = [health.value for health in Health]
    parser.add_argument(
        "--health", choices=healths, action="append", default=[], help="only this health (repeatable)"
    )
    add_output(parser, "text", "json", "yaml", "markdown")
    return parser


def _table(catalogue: Catalogue, checks: Sequence[Check], *, show_disabled: bool) -> Iterator[StyledLine]:
    width = max((len(check.id) for check in checks), default=0)
    action = max((len(check.action.value) for check in checks), default=0)
    for family, group in _by_family(checks):
        yield StyledLine(text=family, style="strong")
        for check in group:
            head = (
                StyledText(f"  {check.id:<{width}}  "),
                StyledText(f"{check.health.value:<9}", check.health.value),
                StyledText(f"{check.action.value:<{action}}  ", "dim"),
            )
            yield StyledLine(head, check.title)
        yield StyledLine()
    for name, file in sorted(catalogue.disabled.items()) if show_disabled else ():
        disabled = (StyledText(f"  {name:<{width}}  ", "dim"), StyledText(f"{'off':<9}", "dim"))
        yield StyledLine(disabled, f"disabled by {file}", "dim")
    families = len({check.family for check in checks})
    yield StyledLine(
        text=f"{count_noun(len(checks), 'check')} in {count_noun(families, 'family', 'families')}"
    )


def _by_family(checks: Sequence[Check]) -> Iterator[tuple[str, list[Check]]]:
    for family in sorted({check.family for check in checks}):
        yield family, [check for check in checks if check.family == family]


def markdown(checks: Sequence[Check]) -> Iterator[str]:
    """Yield the lines of a page with the meaning and remedy of each check under an anchor."""
    yield "# Checks"
    yield ""
    yield f"{len(checks)} checks. Generated with `nodeguard checks -o markdown`."
    for family, group in _by_family(checks):
        yield from ("", f"## {family}")
        for check in group:
            explanation = " ".join(check.description.split())
            yield from ("", f"### {check.id}", "", f"**{check.title}.** {explanation}", "")
            facts = (fact for fact in check_facts(check) if fact.name != "family")
            yield from (f"- {fact.name}: {_escaped(fact.value)}" for fact in facts)


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
