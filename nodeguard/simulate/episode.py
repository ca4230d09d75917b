"""An episode: some hours as usual, then one shared fault or roll-out, and what was made of it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.model.blame import PLACES, Blame
from nodeguard.model.policy import Mode, Policy
from nodeguard.simulate.account import Account, Held, matched
from nodeguard.simulate.background import DAY, USUAL, background
from nodeguard.simulate.fleet import Fleet
from nodeguard.simulate.rollouts import Rollout, rolled_out
from nodeguard.simulate.run import placed
from nodeguard.simulate.shared import planted
from nodeguard.simulate.timeline import Agent
from nodeguard.simulate.topology import Topology
from nodeguard.simulate.troubles import Crowd, Trouble
from nodeguard.wire.report import Report

# Seconds as usual before, where nobody says otherwise; and seconds that a fault is watched for.
BEFORE, AFTER = 6 * 3600.0, 2.5 * 3600.0

# Seconds that a roll-out is watched for at most, and after its end.
_LONGEST, _REST = 3 * 3600.0, 1800.0

_UNBLAMED = Blame(classes=(), held=1_000_000_000)


class Episode(Struct, frozen=True):
    """What was made of it.

    planted, found: domains with the fault, and those of them that were blamed; took: seconds until then, of
    each. wrong: domains that were blamed and should not have been. quarantines: nodes newly kept from all
    work that had the fault. most: nodes out at one time that had nothing. held: checks that were held from
    the fault on; wrongly: how many of them should not have been. labelled: whether what should be held was.
    """

    planted: int
    found: int
    took: tuple[float, ...]
    wrong: int
    quarantines: int
    most: int
    held: tuple[Held, ...]
    wrongly: int
    labelled: bool


def enforcing(policy: Policy, *, blames: bool = True) -> Policy:
    """A policy that marks whatever it may. blames: whether shared parts and checks are blamed at all."""
    blame = replace(policy.blame, enforce=PLACES) if blames else _UNBLAMED
    return placed(replace(policy, mode=Mode.ENFORCE, blame=blame))


def of_fault(
    agent: Agent, fleet: Topology, kind: str, seed: int, policy: Policy, before: float = BEFORE
) -> Episode:
    """The episode of one shared fault of a kind. policy: see enforcing. before: seconds as usual."""
    chance = Random(f"{seed} {kind}")
    usual = list(background(fleet, USUAL, before + AFTER, chance))
    fault = planted(kind, fleet, before, chance)
    account = _watched(Crowd(agent), fleet, [*usual, *fault.troubles], policy, chance, before + AFTER)
    match = matched(account.blames, [fault])
    held = _held(account, before)
    wanted = [one for one in held if one.check == fault.check and not one.domain]
    return Episode(
        match.planted,
        match.found,
        match.took or tuple(one.at - before for one in wanted[:1]),
        match.wrong,
        account.of.total(),
        account.idle,
        held,
        len(held) - len(wanted),
        bool(wanted) or not fault.check,
    )


def of_rollout(
    agent: Agent, wrong: Agent, fleet: Topology, rollout: Rollout, seed: int, policy: Policy
) -> Episode:
    """The episode of a roll-out. wrong: agents of what is rolled out."""
    chance = Random(f"{seed} {rollout.check} {rollout.share} {rollout.lasts} {rollout.by_rack}")
    until = BEFORE + min(rollout.lasts, _LONGEST) + _REST
    usual = list(background(fleet, USUAL, until, chance))
    crowd = Crowd(agent)
    reports = rolled_out(rollout, fleet, crowd.well, wrong, BEFORE, chance)
    account = _watched(crowd, fleet, usual, policy, chance, until, reports)
    held = _held(account, BEFORE)
    wanted = [one for one in held if one.check == rollout.check]
    took = tuple(one.at - BEFORE for one in wanted[:1])
    return Episode(
        0,
        0,
        took,
        len({one.domain for one in account.blames}),
        0,
        account.idle,
        held,
        len(held) - len(wanted),
        bool(wanted),
    )


class Quiet(Struct, frozen=True):
    """Some days with no shared fault. domains, marked: that were blamed, and nodes in them. holds: checks."""

    days: float
    domains: int
    marked: int
    holds: int


def of_noise(
    agent: Agent, fleet: Topology, days: float, seed: int, policy: Policy, before: float = BEFORE
) -> Quiet:
    """Days as usual, after seconds that do not count. A domain that is blamed twice counts once."""
    chance = Random(f"{seed} noise")
    until = before + days * DAY
    usual = list(background(fleet, USUAL, until, chance))
    account = _watched(Crowd(agent), fleet, usual, policy, chance, until)
    domains = {one.domain for one in account.blames if one.at >= before}
    marked = sum(len(fleet.domains.get(one, ())) for one in domains)
    return Quiet(days, len(domains), marked, len(_held(account, before)))


def _watched(
    crowd: Crowd,
    fleet: Topology,
    troubles: Sequence[Trouble],
    policy: Policy,
    chance: Random,
    until: float,
    reports: dict[int, tuple[float, Report]] | None = None,
) -> Account:
    account = Account()
    running = Fleet(fleet, crowd, policy, [account], chance)
    running.run(crowd.moments(troubles, chance, reports), until)
    account.close(until)
    return account


def _held(account: Account, since: float) -> tuple[Held, ...]:
    return tuple(one for one in account.holds if one.at >= since)
