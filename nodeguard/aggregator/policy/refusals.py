"""What a policy must not say, though it fits the form."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET, UnsetType

from nodeguard.aggregator.policy.amounts import LONGEST, duration, share
from nodeguard.aggregator.policy.blame import ClearForm
from nodeguard.aggregator.policy.form import (
    EachForm,
    HoldForm,
    LimitForm,
    ModeForm,
    PolicyForm,
    SilenceForm,
    SoakForm,
)
from nodeguard.catalog.forms import Place
from nodeguard.catalog.located import Located, unique


def refuse(located: Located, form: PolicyForm) -> None:
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


def _refuse_shrinking(located: Located, place: Place, form: SoakForm | ClearForm) -> None:
    if duration(form.most) < duration(form.first):
        problem = f"`most`, {form.most}, is less than `first`, {form.first}"
        field = "most" if (*place, "most") in located.lines else "first"
        raise located.error((*place, field), problem, "write `first` no longer than `most`")


def _shares(form: PolicyForm) -> Iterator[tuple[Place, str]]:
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


def _refuse_share(located: Located, place: Place, text: str) -> None:
    value = share(text)
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


def _durations(form: PolicyForm) -> Iterator[tuple[Place, str | UnsetType]]:
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


def _refuse_duration(located: Located, place: Place, text: str) -> None:
    try:
        duration(text)
    except ValueError:
        longest = f"{LONGEST / 86_400:.0f}d"
        raise located.error(place, f"{text} is longer than a year", f"write at most {longest}") from None


def _refuse_checks(located: Located, form: PolicyForm) -> None:
    """A row speaks of checks by `check` or by `checks`, and a hold of them or of nodes."""
    rows: list[tuple[Place, ModeForm | LimitForm | HoldForm | SilenceForm]] = [
        *((("modes", at), one) for at, one in enumerate(form.modes)),
        *((("budget", "checks", at), one) for at, one in enumerate(form.budget.checks)),
        *((("holds", at), one) for at, one in enumerate(form.holds)),
        *((("silences", at), one) for at, one in enumerate(form.silences)),
    ]
    for place, row in rows:
        named = [name for name in ("check", "checks") if getattr(row, name) is not UNSET]
        if len(named) > 1:
            raise located.error((*place, "check"), "stands beside `checks`", "keep one of them")
        if isinstance(row, (ModeForm, LimitForm)) and not named:
            raise located.error(place, "names no checks", "add `check: gpu-lost` or `checks: [gpu-*]`")
        if isinstance(row, HoldForm):
            _refuse_hold(located, place, row, named)


def _refuse_hold(located: Located, place: Place, hold: HoldForm, named: list[str]) -> None:
    of_nodes = [name for name in ("node", "labels") if getattr(hold, name)]
    if not named and not of_nodes:
        raise located.error(place, "holds nothing", "add `node`, `labels` or `checks`")
    if named and of_nodes:
        problem = f"stands beside `{of_nodes[0]}`: a hold is of nodes or of checks"
        raise located.error((*place, named[0]), problem, "write two holds")


def _refuse_limits(located: Located, form: PolicyForm) -> None:
    each = form.budget.check
    rows: list[tuple[Place, EachForm | LimitForm]] = [(("budget", "check"), each)]
    rows += [(("budget", "checks", at), one) for at, one in enumerate(form.budget.checks)]
    for place, one in rows:
        new, standing = one.new or each.new, one.standing or each.standing
        if standing < new:
            field = "standing" if (*place, "standing") in located.lines else "new"
            problem = f"`standing`, {standing}, is less than `new`, {new}, which could never be used up"
            raise located.error((*place, field), problem, f"raise `standing` to {new} or lower `new`")


def _refuse_pools(located: Located, form: PolicyForm) -> None:
    unique(located, ((("pools", at, "name"), pool.name) for at, pool in enumerate(form.pools)))
    for at, pool in enumerate(form.pools):
        for before in form.pools[:at]:
            if before.labels.items() <= pool.labels.items():
                problem = f"'{pool.name}' gets no node: '{before.name}', which stands before it, has them all"
                raise located.error(("pools", at, "name"), problem, "put it before that one, or remove it")


def _refuse_views(located: Located, form: PolicyForm) -> None:
    for view in form.views.__struct_fields__:
        labels = getattr(form.views, view) or ()
        unique(located, ((("views", view, at), label) for at, label in enumerate(labels)))
