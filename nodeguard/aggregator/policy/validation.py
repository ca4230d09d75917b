"""What a policy must not say, though it fits the form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import UNSET, UnsetType

from nodeguard.aggregator.policy.diagnosis import RecoverySpec
from nodeguard.aggregator.policy.schema import (
    CheckOverrideSpec,
    HoldSpec,
    ModeRuleSpec,
    PerCheckSpec,
    PolicySpec,
    SilenceSpec,
    SoakSpec,
)
from nodeguard.aggregator.policy.units import MAX_DURATION, parse_duration, parse_share
from nodeguard.config.field_path import FieldPath
from nodeguard.config.yaml_document import YamlDocument, require_unique


def validate_policy(located: YamlDocument, form: PolicySpec) -> None:
    """Raises CatalogueError for the first thing in a file that contradicts itself or means nothing."""
    for place, text in _shares(form):
        _refuse_share(located, place, text)
    for place, written in _durations(form):
        if not isinstance(written, UnsetType):
            _refuse_duration(located, place, written)
    _refuse_checks(located, form)
    _refuse_limits(located, form)
    _refuse_pools(located, form)
    _refuse_views(located, form)
    _refuse_shrinking(located, ("soak",), form.soak)
    _refuse_shrinking(located, ("blame", "clear"), form.blame.clear)


def _refuse_shrinking(located: YamlDocument, place: FieldPath, form: SoakSpec | RecoverySpec) -> None:
    if parse_duration(form.most) < parse_duration(form.first):
        problem = f"`most`, {form.most}, is less than `first`, {form.first}"
        field = "most" if (*place, "most") in located.lines else "first"
        raise located.error((*place, field), problem, "write `first` no longer than `most`")


def _shares(form: PolicySpec) -> Iterator[tuple[FieldPath, str]]:
    for name in ("fleet", "reserve", "pool", "domain", "suspect", "degraded", "first"):
        yield ("budget", name), getattr(form.budget, name)
    for at, pool in enumerate(form.pools):
        if not isinstance(pool.share, UnsetType):
            yield ("pools", at, "share"), pool.share
    yield ("silent", "freeze"), form.silent.freeze
    yield ("blame", "weak", "share"), form.blame.weak.share
    yield ("blame", "doubt", "second"), form.blame.doubt.second
    for name, one in form.blame.classes.items():
        if not isinstance(one.share, UnsetType):
            yield ("blame", "classes", name, "share"), one.share


def _refuse_share(located: YamlDocument, place: FieldPath, text: str) -> None:
    value = parse_share(text)
    if place == ("budget", "reserve"):
        if value >= 1:
            raise located.error(
                place, f"{text} leaves nothing for what is not fatal", "write less than 100%, such as 20%"
            )
    elif value > 1:
        raise located.error(place, f"{text} is more than all", "write at most 100%")
    elif value == 0:
        remedy = "write more than 0%; nothing is marked in the mode `observe`, or with `pause: true`"
        if place[0] == "silent":
            remedy = "write more than 0%"
        raise located.error(place, f"{text} is no share", remedy)


def _durations(form: PolicySpec) -> Iterator[tuple[FieldPath, str | UnsetType]]:
    for part, fields in (
        ("settle", ("quarantine", "suspect", "shared")),
        ("soak", ("first", "most", "forget")),
        ("silent", ("after",)),
    ):
        yield from (((part, name), getattr(getattr(form, part), name)) for name in fields)
    yield ("blame", "settle"), form.blame.settle
    for name in ("patience", "lately"):
        yield ("blame", "weak", name), getattr(form.blame.weak, name)
    for name in ("first", "most", "forget"):
        yield ("blame", "clear", name), getattr(form.blame.clear, name)
    for at, one in enumerate(form.blame.doubt.windows):
        yield ("blame", "doubt", "windows", at), one
    for kind, each in form.blame.classes.items():
        for at, one in enumerate(each.windows or ()):
            yield ("blame", "classes", kind, "windows", at), one
    yield ("budget", "check", "within"), form.budget.check.within
    for at, limit in enumerate(form.budget.checks):
        yield ("budget", "checks", at, "within"), limit.within


def _refuse_duration(located: YamlDocument, place: FieldPath, text: str) -> None:
    try:
        parse_duration(text)
    except ValueError:
        longest = f"{MAX_DURATION / 86_400:.0f}d"
        raise located.error(place, f"{text} is longer than a year", f"write at most {longest}") from None


def _refuse_checks(located: YamlDocument, form: PolicySpec) -> None:
    """A row speaks of checks by `check` or by `checks`, and a hold of them or of nodes."""
    rows: list[tuple[FieldPath, ModeRuleSpec | CheckOverrideSpec | HoldSpec | SilenceSpec]] = [
        *((("modes", at), one) for at, one in enumerate(form.modes)),
        *((("budget", "checks", at), one) for at, one in enumerate(form.budget.checks)),
        *((("holds", at), one) for at, one in enumerate(form.holds)),
        *((("silences", at), one) for at, one in enumerate(form.silences)),
    ]
    for place, row in rows:
        named = [name for name in ("check", "checks") if getattr(row, name) is not UNSET]
        if len(named) > 1:
            raise located.error((*place, "check"), "stands beside `checks`", "keep one of them")
        if isinstance(row, (ModeRuleSpec, CheckOverrideSpec)) and not named:
            raise located.error(place, "names no checks", "add `check: gpu-lost` or `checks: [gpu-*]`")
        if isinstance(row, HoldSpec):
            _refuse_hold(located, place, row, named)


def _refuse_hold(located: YamlDocument, place: FieldPath, hold: HoldSpec, named: list[str]) -> None:
    of_nodes = [name for name in ("node", "labels") if getattr(hold, name)]
    if not named and not of_nodes:
        raise located.error(place, "holds nothing", "add `node`, `labels` or `checks`")
    if named and of_nodes:
        problem = f"stands beside `{of_nodes[0]}`: a hold is of nodes or of checks"
        raise located.error((*place, named[0]), problem, "write two holds")


def _refuse_limits(located: YamlDocument, form: PolicySpec) -> None:
    each = form.budget.check
    rows: list[tuple[FieldPath, PerCheckSpec | CheckOverrideSpec]] = [(("budget", "check"), each)]
    rows += [(("budget", "checks", at), one) for at, one in enumerate(form.budget.checks)]
    for place, one in rows:
        new, standing = one.new or each.new, one.standing or each.standing
        if standing < new:
            field = "standing" if (*place, "standing") in located.lines else "new"
            problem = f"`standing`, {standing}, is less than `new`, {new}, which could never be used up"
            raise located.error((*place, field), problem, f"raise `standing` to {new} or lower `new`")


def _refuse_pools(located: YamlDocument, form: PolicySpec) -> None:
    require_unique(located, ((("pools", at, "name"), pool.name) for at, pool in enumerate(form.pools)))
    for at, pool in enumerate(form.pools):
        for before in form.pools[:at]:
            if before.labels.items() <= pool.labels.items():
                problem = f"'{pool.name}' gets no node: '{before.name}', which stands before it, has them all"
                raise located.error(("pools", at, "name"), problem, "put it before that one, or remove it")


def _refuse_views(located: YamlDocument, form: PolicySpec) -> None:
    for view in form.views.__struct_fields__:
        labels = getattr(form.views, view) or ()
        require_unique(located, ((("views", view, at), label) for at, label in enumerate(labels)))


# Source: Kubernetes, labels and selectors, syntax and character set.
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


def validate_labels(located: YamlDocument) -> None:
    """Raises CatalogueError for labels that no Node can have, before the form says less of them."""
    for place, labels in _labels(located.data):
        for key, value in labels.items():
            _refuse_label(located, (*place, key), key, value)


def _labels(data: Any) -> Iterator[tuple[FieldPath, dict[Any, Any]]]:
    for part in ("pools", "holds"):
        rows = data.get(part) if isinstance(data, dict) else None
        for at, row in enumerate(rows if isinstance(rows, list) else ()):
            labels = row.get("labels") if isinstance(row, dict) else None
            if isinstance(labels, dict):
                yield (part, at, "labels"), labels


def _refuse_label(located: YamlDocument, place: FieldPath, key: Any, value: Any) -> None:
    prefix, slash, name = str(key).rpartition("/")
    if not _NAME.fullmatch(name) or (slash and not (_PREFIX.fullmatch(prefix) and len(prefix) <= 253)):
        problem = f"'{key}' is no label key that Kubernetes accepts"
        raise located.error(place, problem, "write it like rack or topology.kubernetes.io/zone")
    if isinstance(value, (bool, int, float)):
        written = str(value).lower()
        raise located.error(place, f"{written} is no text", "put it in quotes, as labels are text")
    if not isinstance(value, str):
        raise located.error(place, "is no label value", "write one value as text")
    if value and not _NAME.fullmatch(value):
        problem = f"'{value}' is no label value that Kubernetes accepts"
        remedy = "write up to 63 letters, digits, '-', '_' and '.', a letter or digit first and last"
        raise located.error(place, problem, remedy)
