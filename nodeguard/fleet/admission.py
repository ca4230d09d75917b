"""Which of the marks that are asked for may be set: the worst first, while no ledger is full. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.budgets import Refusal
from nodeguard.fleet.holding import Holding, standing
from nodeguard.fleet.ledgers import Ledgers, Standing
from nodeguard.fleet.record import ROOM, written
from nodeguard.fleet.seat import Seat
from nodeguard.fleet.want import Want
from nodeguard.model.incident import GRANTED, State
from nodeguard.model.mark import STATE, Cause, Charge, Mark
from nodeguard.model.policy import Policy


class Outcome(Struct, frozen=True):
    """What becomes of a mark that is asked for: the decision, with its reason.

    state: `Marked` (`Advised` without a cluster); `Pending`: in its grace period, which ends at `until`,
    seconds since the epoch; `DryRun`: its check is not enforced; `Withheld`; or `Open`: a mark of its domain
    stands in for it. why: the reason in words; of a dry run, what would withhold it, empty where nothing
    would. refusal: the budget that has no room, where that is the reason.
    """

    want: Want
    state: State
    why: str = ""
    until: float = 0.0
    refusal: Refusal | None = None

    @property
    def is_granted(self) -> bool:
        """Whether the mark is set, or is about to be."""
        return self.state in GRANTED


# What names a want: see Want.name.
Name = tuple[str, str, str]


class Grant(Struct, frozen=True):
    """A request that was granted, and when, in seconds since the epoch."""

    want: Want
    at: float


_NONE: dict[Name, Grant] = {}


class Scene(Struct, frozen=True):
    """What marks are allotted in.

    seats, holdings: of every node that something is asked of, by uid. charged: what each is charged with,
    which the ledgers have already. bars: why nothing new may be marked on a node, empty where it may. now:
    seconds since the epoch.
    """

    policy: Policy
    seats: Mapping[str, Seat]
    holdings: Mapping[str, Holding]
    charged: Mapping[str, Standing]
    bars: Callable[[Want], str]
    now: float


class Allotted(Struct, frozen=True):
    """What became of requests.

    holdings: what each node that gets a mark holds then. charged: what these nodes are charged with then.
    outcomes: one for each request. grants: the requests that were granted, those that were before, too.
    """

    holdings: dict[str, Holding]
    charged: dict[str, Standing]
    outcomes: list[Outcome]
    grants: dict[Name, Grant]


def allot(
    wants: Iterable[Want],
    scene: Scene,
    ledgers: Ledgers,
    granted: State,
    already: Mapping[Name, Grant] = _NONE,
) -> Allotted:
    """Return what each node that gets a mark is to hold, and what becomes of each request.

    granted: the state of a request that is granted. `DryRun` counts marks that are not set: there a request
    that is refused is a dry run as well, with the reason that would withhold it. already: requests of a dry
    run that were granted before. While their findings last, they stay as marks do: they come first, nothing
    refuses them, and one that got worse since asks for its new mark. The budgets are charged with what is
    granted. What is released meanwhile is not spent here, as either may be written first; so it is in a dry
    run with a request that is not made any more.

    A quarantined node gets no suspect mark beside that, as quarantine keeps the same work away: the request
    is granted and uses no budget. Once the quarantine is over, it is decided like that of any other node.
    """
    allotment = _Allotment(scene, ledgers)
    dry_run = granted == State.DRY_RUN
    refused_state = State.DRY_RUN if dry_run else State.WITHHELD
    outcomes, over_budget = [], []
    in_order = sorted(wants, key=lambda one: one.order)
    asked = {want.name for want in in_order}
    for name, grant in sorted(already.items(), key=lambda one: (one[1].at, one[1].want.order)):
        if name not in asked:
            allotment.count(grant)
        elif not allotment.crowded(grant.want):
            allotment.grant(grant.want, grant.at)
    for want in in_order:
        holding = allotment.holding(want.uid)
        if stands(holding, want) or (want.mark == Mark.SUSPECT and holding.is_quarantined):
            outcomes.append(Outcome(want, granted))
        elif until := pending_until(scene.policy, want, scene.now):
            outcomes.append(Outcome(want, State.PENDING, until=until))
        elif why := scene.bars(want) or allotment.crowded(want):
            outcomes.append(Outcome(want, refused_state, why))
        elif refusal := allotment.refusal(want):
            over_budget.append((want, refusal))
        else:
            allotment.grant(want, already[want.name].at if want.name in already else scene.now)
            outcomes.append(Outcome(want, granted))
    # Asked again at the end, so that the same budget is named the next time.
    for want, before in over_budget:
        refusal = allotment.refusal(want) or before
        why = refusal.words(dry_run=dry_run)
        outcomes.append(Outcome(want, refused_state, why, refusal=refusal))
    return Allotted(allotment.holdings, allotment.charged, outcomes, allotment.grants)


class _Allotment:
    """Marks on their way to being allotted. holdings, charged, grants: see Allotted."""

    def __init__(self, scene: Scene, ledgers: Ledgers) -> None:
        self.holdings: dict[str, Holding] = {}
        self._scene, self._ledgers = scene, ledgers
        self.charged: dict[str, Standing] = {}
        self.grants: dict[Name, Grant] = {}
        self._refusals: dict[object, Refusal | None] = {}

    def holding(self, uid: str) -> Holding:
        return self.holdings.get(uid) or self._scene.holdings.get(uid) or _EMPTY

    def crowded(self, want: Want) -> str:
        """Return why a request cannot be recorded; empty where it can."""
        record = _with(self.holding(want.uid), want, 0.0).of(want.device)
        # Most are far from it, and are not written out to see.
        if sum(map(_letters, record.causes)) * _LONGEST < ROOM or len(written(record).encode()) <= ROOM:
            return ""
        return f"the annotation {STATE} has no room for another cause"

    def refusal(self, want: Want) -> Refusal | None:
        """Return the budget that has no room for a request; None where all have."""
        if self.holding(want.uid) is _EMPTY and want.uid not in self.charged:
            return self._of_unmarked(want)
        before, after, _ = self._cost(want, self._scene.now)
        return self._ledgers.refusal(before, after, self._scene.now)

    def grant(self, want: Want, at: float) -> None:
        self.holdings[want.uid] = self._charge(want, at)
        self.grants[want.name] = Grant(want, at)

    def count(self, grant: Grant) -> None:
        """Charge the budgets with what is being released."""
        if grant.want.uid in self._scene.seats:
            self._charge(grant.want, grant.at)

    def _charge(self, want: Want, at: float) -> Holding:
        before, after, holding = self._cost(want, at)
        self._ledgers.charge(before, -1)
        self._ledgers.charge(after)
        self.charged[want.uid] = after
        self._refusals.clear()
        return holding

    def _of_unmarked(self, want: Want) -> Refusal | None:
        """The same for a node that holds nothing: for many nodes alike, until something is granted again."""
        seat, suspect = self._scene.seats[want.uid], want.mark == Mark.SUSPECT
        if want.check not in self._refusals:
            self._refusals[want.check] = self._ledgers.spent_by(want.check, self._scene.now)
        spent = self._refusals[want.check]
        if spent is not None or seat.out:
            return spent
        alike = seat.ledgers, seat.gpus if want.device else 0, suspect
        if alike not in self._refusals:
            quarantined = frozenset() if suspect else frozenset({want.device})
            self._refusals[alike] = self._ledgers.full(Standing(seat), Standing(seat, quarantined, suspect))
        return self._refusals[alike]

    def _cost(self, want: Want, at: float) -> tuple[Standing, Standing, Holding]:
        seat, holding = self._scene.seats[want.uid], self.holding(want.uid)
        before = self.charged.get(want.uid) or self._scene.charged.get(want.uid) or standing(seat, holding)
        after = _with(holding, want, at)
        return before, _charged(seat, before, holding, after), after


_EMPTY = Holding()


def stands(holding: Holding, want: Want) -> bool:
    """Whether a mark at least as bad stands already for the same finding, on the node or on a device."""
    return any(
        (cause.check, cause.target) == (want.check, want.target)
        and cause.mark in {want.mark, Mark.QUARANTINE}
        for place in holding.places
        for cause in holding.of(place).causes
    )


# Bytes of a letter at most, in an annotation's JSON.
_LONGEST = 6


def _letters(cause: Cause) -> int:
    """How long a cause is, rather too much than too little."""
    words = cause.check, cause.target, cause.word, cause.part, *cause.slots
    return 64 + sum(len(one) + 4 for one in words)


def settle(policy: Policy, want: Want) -> float:
    """Return the grace period of a request: for how many seconds its finding has to last before the mark."""
    own = policy.settle.quarantine if want.mark == Mark.QUARANTINE else policy.settle.suspect
    return max(own, policy.settle.shared) if want.shared else own


def pending_until(policy: Policy, want: Want, now: float) -> float:
    """Return when the grace period of a request ends, in seconds since the epoch; 0 when it is over."""
    end = want.since + settle(policy, want)
    # A finding that began in the future began before the clock was set back.
    return end if want.since <= now < end else 0.0


def _with(holding: Holding, want: Want, now: float) -> Holding:
    """What a node holds once a want is granted. A finding that got worse takes its own place."""
    record = holding.of(want.device)
    cause = Cause(want.mark, want.check, want.target, want.word, now, want.slots, want.part)
    others = (one for one in record.causes if (one.check, one.target) != (want.check, want.target))
    charge = record.charge or Charge(want.check, want.mark, now)
    return holding.put(want.device, replace(record, causes=(*others, cause), charge=charge))


def _charged(seat: Seat, before: Standing, holding: Holding, after: Holding) -> Standing:
    """The standing after a grant: what is charged stays so, and a new charge comes last."""
    new = [
        charge
        for place in after.places
        if (charge := after.of(place).charge) is not None and holding.of(place).charge is None
    ]
    grown = standing(seat, after)
    return replace(
        before,
        quarantined=before.quarantined | grown.quarantined,
        suspect=before.suspect or grown.suspect,
        charges=(*before.charges, *new),
    )
