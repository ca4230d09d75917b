"""nodeguard get: lists of nodes, GPUs, ports, domains, incidents, actions, checks and budgets."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from nodeguard.cli.aggregator_client import NotFoundError, add_socket
from nodeguard.cli.field_selector import parse_field_selector
from nodeguard.cli.options import add_output
from nodeguard.cli.progress import add_watch, print_or_watch
from nodeguard.cli.render.resources import ResourceTable, resource_lines
from nodeguard.cli.render.terminal import StyledLine, format_lines, terminal_width, view_lines
from nodeguard.cli.resource_lists import RESOURCES, Resource, ResourceList, exact_names, is_selected, one_of
from nodeguard.cli.streams import as_document, is_document, is_terminal, print_output
from nodeguard.cli.usage import OK, ArgumentParser, did_you_mean
from nodeguard.model.finding import Health

# Names among which a similar one is searched for: more of them take seconds.
_MAX_SIMILAR = 10_000


def run(options: Namespace) -> int:
    """Run the command; returns its exit code. Raises UsageError, and NotFoundError for names that do not
    exist, after the output of the others.
    """
    resource = RESOURCES[options.resource]
    listed = resource.fetch(options)
    errors = list(_not_found(resource.table, options, listed))
    if errors and len(errors) == len(options.names):
        raise NotFoundError("\n".join((*errors, *listed.notes)))
    if options.watch:
        print_or_watch(lambda: _render(resource, options, resource.fetch(options)), options)
    print_output(_render(resource, options, listed))
    if errors:
        raise NotFoundError("\n".join(errors))
    return OK


def _not_found(table: ResourceTable, options: Namespace, listed: ResourceList) -> Iterator[str]:
    """Yield the error of each name that does not exist. Patterns match any number of names.

    A response that is cut or restricted by a filter of the aggregator does not show it.
    """
    names = exact_names(options)
    if not names or listed.omitted or _has_filter(options, "selector", "state"):
        return
    existing = {
        name
        for item in _before_filters(table, listed)
        for name in (table.name(item), *table.other_names(item))
    }
    kind = options.resource
    every = " --all" if kind in {"incidents", "domains"} else ""
    for name in names:
        if name not in existing:
            hint = did_you_mean(name, existing) if len(existing) <= _MAX_SIMILAR else ""
            yield f"{table.kind} '{name}' not found: {hint}see nodeguard get {kind}{every}"


def _has_filter(options: Namespace, *names: str) -> bool:
    """Return whether one of these options is set: the aggregator filters by it."""
    return any(getattr(options, name, None) for name in names)


def _before_filters(table: ResourceTable, listed: ResourceList) -> Sequence[Any]:
    items: Sequence[Any] = getattr(listed.response, table.field, listed.response)
    return items


def _render(resource: Resource, options: Namespace, listed: ResourceList) -> str:
    table = resource.table
    items = [
        item
        for item in listed.items
        if any(is_selected(name, options.names) for name in (table.name(item), *table.other_names(item)))
        and all(term.matches(item) for term in options.field_selector)
    ]
    if options.sort_by:
        items = _sorted(items, options.sort_by)
    if options.reverse:
        items.reverse()
    if options.output == "name":
        return "\n".join(f"{table.kind}/{table.name(item)}" for item in items)
    if is_document(options.output):
        return as_document(_document(resource, listed, items), options.output)
    width = terminal_width() if is_terminal() else None
    lines = resource_lines(
        table,
        items,
        width,
        wide=options.output == "wide",
        omitted=listed.omitted,
        selected_from=len(_before_filters(table, listed)),
        is_filtered=_has_filter(options, "selector", "state"),
    )
    if resource.heading is not None:
        lines = [*view_lines(resource.heading(listed.response)), StyledLine(), *lines]
    lines += [StyledLine(text=note, style="warning") for note in listed.notes]
    if resource.elsewhere and is_terminal():
        lines.append(StyledLine(text=resource.elsewhere, style="dim"))
    return format_lines(lines)


def _document(resource: Resource, listed: ResourceList, items: list[Any]) -> Any:
    """Return the response of the API with the selected items."""
    import msgspec  # noqa: PLC0415 - for two formats

    document = msgspec.to_builtins(listed.response)
    if isinstance(document, dict):
        document[resource.table.field] = msgspec.to_builtins(items)
        return document
    return msgspec.to_builtins(items)


def _sorted(items: list[Any], field: str) -> list[Any]:
    """Return items by a field."""

    def key(item: Any) -> tuple[bool, Any]:
        value = getattr(item, field)
        rank = Health(value).rank if field == "health" and value in set(Health) else None
        value = rank if rank is not None else value
        number = value if isinstance(value, (int, float)) else None
        return (value is None, number if number is not None else str(value))

    try:
        return sorted(items, key=key)
    except TypeError:
        return sorted(items, key=lambda item: str(getattr(item, field)))


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard get",
        description="List nodes, GPUs, ports, failure domains, incidents, actions, checks or budgets.",
        examples=(
            "nodeguard get nodes --unhealthy",
            "nodeguard get nodes -l pool=a -o name",
            "nodeguard get incidents -n gpu-7 -o wide",
            "nodeguard get gpus -n gpu-7",
            "nodeguard get gpus 'GPU-2c1b*' -o wide",
            "nodeguard get ports -n gpu-7",
            "nodeguard get domains --all",
            "nodeguard get actions --kind drain",
            "nodeguard get checks 'gpu-*'",
            "nodeguard get budgets -o json",
            """nodeguard get nodes -o jsonpath='{.nodes[?(@.health=="fatal")].node}'""",
        ),
    )
    kinds = parser.add_subparsers(dest="alias", metavar=" | ".join(RESOURCES), required=True)
    for name, resource in RESOURCES.items():
        elsewhere = resource.elsewhere and f" {resource.elsewhere[:1].upper()}{resource.elsewhere[1:]}."
        description = f"List {resource.about}.{elsewhere}"
        part = kinds.add_parser(name, aliases=resource.aliases, help=resource.about, description=description)
        part.set_defaults(resource=name)
        part.add_argument(
            "names", metavar="NAME", nargs="*", help="names or patterns such as gpu-*; default: all"
        )
        add_output(part, "text", "wide", "json", "yaml", "name")
        fields = resource.item.__struct_fields__
        part.add_argument(
            "--sort-by",
            metavar="FIELD",
            type=partial(one_of, "field", fields),
            choices=fields,
            help="sort by a field of the JSON, such as health",
        )
        part.add_argument(
            "--field-selector",
            metavar="FIELDS",
            type=partial(parse_field_selector, fields),
            default=(),
            help="only items with these values in fields of the JSON, as in kubectl: health=fatal,pool!=a",
        )
        part.add_argument("--reverse", action="store_true", help="reverse the order")
        resource.add_filters(part)
        add_watch(part)
        if name != "checks":
            add_socket(part)
    return parser
