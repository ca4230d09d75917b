"""nodeguard checks: list the checks, and validate a site's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodeguard.cli.check_catalogue import load_catalogue, parse_families
from nodeguard.cli.options import add_checks, add_only
from nodeguard.cli.render.check_text import check_facts
from nodeguard.cli.render.terminal import StyledLine, StyledText, print_lines
from nodeguard.cli.streams import print_output
from nodeguard.cli.usage import OK, ArgumentParser
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import Check


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError for a file that is wrong."""
    options = _parser().parse_args(arguments)
    catalogue, _ = load_catalogue(options.checks)
    only = parse_families(catalogue, options.only)
    checks = [check for check in catalogue.checks if only is None or check.family in only]
    match options.format:
        case "json":
            import msgspec  # noqa: PLC0415 - one format of three

            print_output(msgspec.json.format(msgspec.json.encode(checks), indent=2).decode())
        case "markdown":
            print_output("\n".join(markdown(checks)))
        case _:
            print_lines(list(_table(catalogue, checks)))
    return OK


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="nodeguard checks",
        description="Lists the checks. With --checks it validates a folder of yours and shows the result.",
    )
    add_checks(parser)
    add_only(parser)
    parser.add_argument(
        "--format", choices=("table", "json", "markdown"), default="table", help="how to say it"
    )
    return parser


def _table(catalogue: Catalogue, checks: Sequence[Check]) -> Iterator[StyledLine]:
    wide = max((len(check.id) for check in checks), default=0)
    for family, group in _by_family(checks):
        yield StyledLine(text=family, style="strong")
        for check in group:
            head = (
                StyledText(f"  {check.id:<{wide}}  "),
                StyledText(f"{check.health.value:<8}", check.health.value),
            )
            yield StyledLine(head, check.title)
        yield StyledLine()
    for name, file in sorted(catalogue.disabled.items()):
        yield StyledLine(
            (StyledText(f"  {name:<{wide}}  ", "dim"), StyledText(f"{'off':<8}", "dim")),
            f"disabled by {file}",
            "dim",
        )
    number = len({check.family for check in checks})
    yield StyledLine(text=f"{len(checks)} checks in {number} {'family' if number == 1 else 'families'}")


def _by_family(checks: Sequence[Check]) -> Iterator[tuple[str, list[Check]]]:
    for family in sorted({check.family for check in checks}):
        yield family, [check for check in checks if check.family == family]


def markdown(checks: Sequence[Check]) -> Iterator[str]:
    """The page docs/checks.md: what each check means, and what to do, under an anchor of its own."""
    yield "# Checks"
    yield ""
    yield f"{len(checks)} checks, made from the catalogue by `nodeguard checks --format markdown`."
    for family, group in _by_family(checks):
        yield from ("", f"## {family}")
        for check in group:
            yield from (
                "",
                f"### {check.id}",
                "",
                f"**{check.title}.** {' '.join(check.explanation.split())}",
                "",
            )
            yield from (
                f"- {field}: {_escaped(text)}" for field, text in check_facts(check) if field != "family"
            )


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
