"""Node for tests of the judge, evaluated round by round, with factories of checks and findings."""

from __future__ import annotations

from typing import Any

from nodeguard.judge.judge import JudgeSettings, judge
from nodeguard.judge.rules import compile_rules
from nodeguard.judge.state import JudgeState
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import Check, Condition
from nodeguard.model.finding import Action, DataStatus, Evidence, Finding, Health, Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Component, Event, Observation, Reading
from nodeguard.model.signal import Scalar, Signal
from nodeguard.model.target import NODE

# Seconds since the epoch when the machine of these tests booted.
BOOTED = 1_000_000.0


def check(when: Condition, name: str = "one", **fields: Any) -> Check:
    """A check of the node with health suspect and action monitor; fields: other values."""
    words = {
        "family": "family",
        "targets": (NODE,),
        "health": Health.SUSPECT,
        "action": Action.MONITOR,
        "message": "{target}",
        "remedy": "Look.",
        "description": "",
        "source": "",
        "title": name,
    }
    return Check(id=name, when=when, **{**words, **fields})


def finding(name: str = "one", target: str = NODE, **fields: Any) -> Finding:
    """A fresh finding with health suspect and action monitor; fields: other values."""
    words = {
        "component": "",
        "health": Health.SUSPECT,
        "data_status": DataStatus.FRESH,
        "action": Action.MONITOR,
        "since": 0.0,
        "message": "m",
        "evidence": (Evidence("memory", f"{name} on {target}", 1.0),),
        "family": "family",
        "title": name,
        "remedy": "",
        "runbook": "",
    }
    return Finding(check=name, target=target, **{**words, **fields})


def observe(target: str = NODE, source: str = "memory", *, part: str = "", **signals: Scalar) -> Observation:
    """Return the observation of a target with these signals; `a__b` is the signal `a.b`."""
    values = {name.replace("__", "."): value for name, value in signals.items()}
    return Observation(source, target, signals=values, component=Component(part) if part else None)


def unread(target: str, signal: str, reason: str = "refused", source: str = "memory") -> Observation:
    """Return the observation of a target with an unread signal."""
    return Observation(source, target, unreadable={signal: reason})


def logged(target: str, *events: Event) -> Observation:
    """Return an observation of the kernel log with events of a target."""
    return Observation("kmsg", target, events=events)


class JudgedNode:
    """A node with its checks and the state of the judge."""

    def __init__(self, *checks: Check, one_shot: bool = False, signals: tuple[Signal, ...] = ()) -> None:
        self.rules = compile_rules(Catalogue(checks=checks), {signal.name: signal for signal in signals})
        self.state = JudgeState()
        self.settings = JudgeSettings(one_shot=one_shot)

    def round(
        self,
        at: float,
        *observations: Observation,
        sources: tuple[str, ...] = (),
        boot: str = "boot",
        complete: bool = True,
        booted: float = BOOTED,
    ) -> Verdict:
        """Return the verdict of a round. sources: those that were read without an observation."""
        names = dict.fromkeys((*sources, *(observation.source for observation in observations)))
        readings = [
            Reading(
                name,
                at,
                tuple(observation for observation in observations if observation.source == name),
                complete,
            )
            for name in names
        ]
        self.state, verdict = judge(
            self.rules, self.state, readings, Instant(booted + at, at, boot), self.settings
        )
        return verdict

    def health(self, at: float, *observations: Observation, **words: Any) -> Health:
        """Return the health after a round."""
        return self.round(at, *observations, **words).health
