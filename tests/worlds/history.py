"""Histories of worlds: what each step does, and random histories from a seed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from tests.worlds.agents import FAULTS
from tests.worlds.options import OPTIONS

MIN_NODES, MAX_NODES = 8, 60


class Step(Struct, frozen=True):
    """One step of a history. nodes: by number. value: see `World.apply`. seconds: that pass after it."""

    kind: str
    nodes: tuple[int, ...] = ()
    value: str = ""
    seconds: float = 1.0

    def __str__(self) -> str:
        """Return the step in one line."""
        words = [self.kind, self.value, _ranges(self.nodes), f"then {self.seconds:g} s"]
        return " ".join(word for word in words if word)


class History(Struct, frozen=True):
    """A world before its first step, and its steps. leaf: nodes of a leaf; a rack is half of one, a pod two.
    age: seconds since the start of the first aggregator.
    devices: numbers of the nodes with published GPUs. options: of the policy.
    """

    nodes: int
    leaf: int
    age: float
    options: tuple[str, ...]
    devices: tuple[int, ...]
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        """Return the history in lines."""
        head = f"{self.nodes} nodes in leaves of {self.leaf}; policy: {', '.join(self.options) or 'default'}"
        devices = f"; published GPUs: {_ranges(self.devices)}" if self.devices else ""
        return "\n".join([head + devices, *(f"  {step}" for step in self.steps)])


def _ranges(numbers: Sequence[int]) -> str:
    """Return numbers as text: `0-3 7`."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return " ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in parts)


# How often each step is taken, beside the others.
_WEIGHTS = {
    "fault": 26, "escalate": 3, "clear": 12, "unread": 3, "late": 2, "silent": 7, "leave": 1, "return": 6,
    "reboot": 2, "delete": 2, "create": 2, "cordon": 2, "uncordon": 2, "hold": 2, "unhold": 2, "maintain": 2,
    "unmaintain": 2, "taint": 1, "untaint": 2, "pause": 1, "resume": 2, "policy": 3, "relabel": 2,
    "driver": 2, "clock": 3, "restart": 3, "leader": 1, "lose": 2, "slow": 2, "forge": 6, "dismiss": 1,
    "wait": 5,
}  # fmt: skip
FORGERIES = (
    "another node", "an old uid", "another boot", "a used sequence", "unfamiliar checks", "huge evidence",
    "no message", "ages without end",
)  # fmt: skip
_SECONDS = (1.0, 1.0, 5.0, 20.0, 60.0, 120.0, 400.0, 700.0, 2_000.0, 8_000.0)
_JUMPS = ("-86400", "-3600", "-120", "120", "3600", "86400")


def random_history(seed: int) -> History:
    """Return the history of a seed."""
    random = Random(seed)
    nodes = random.choice((8, 12, 16, 24, 24, 32, 40, 60))
    leaf = random.choice([size for size in (4, 6, 8) if size * 2 <= nodes])
    options = [random.choice(("wide budgets", "wide budgets", "medium budgets", "no reserve"))]
    options += [random.choice(("marks of leaves", "marks of domains", "no conditions"))]
    options += [name for name in OPTIONS if random.random() < (0.02 if name in _RARE else 0.12)]
    devices = random.sample(range(nodes), random.choice((0, 0, nodes // 4)))
    kinds = random.choices(list(_WEIGHTS), list(_WEIGHTS.values()), k=random.randint(3, 16))
    is_compared = random.random() < _COMPARED
    if is_compared:
        kinds = _with_crash(kinds[:_COMPARED_STEPS], random)
    steps: list[Step] = []
    before: tuple[int, ...] = ()
    for kind in kinds:
        step = _step(kind, nodes, leaf, random)
        # Much happens on the same nodes: a fault ends, and the agent stops in the soak period.
        if step.nodes and before and random.random() < _SAME_NODES:
            step = replace(step, nodes=before)
        before = step.nodes or before
        steps.append(step)
    # The first aggregator of a fleet is more careful in its first minutes than its successors.
    age = 900.0 if is_compared else random.choice((5.0, 900.0))
    if random.random() < _REHEARSED:
        for _ in range(random.randint(1, 3)):
            steps.insert(random.randrange(len(steps) + 1), _step("inject", nodes, leaf, random))
    if is_compared:
        # Older faults count towards the usual rates, which the new aggregator does not have.
        steps = [replace(step, seconds=min(step.seconds, _COMPARED_SECONDS)) for step in steps]
    return History(nodes, leaf, age, tuple(dict.fromkeys(options)), tuple(sorted(devices)), tuple(steps))


def _with_crash(kinds: list[str], random: Random) -> list[str]:
    """Return steps with a crash of the aggregator, of which the new one gets the same data as the one before."""
    at = random.randint(1, len(kinds))
    before = [kind for kind in kinds[:at] if kind not in _LOST_IN_CRASH.keys() | _NOT_WITH_CRASH.keys()]
    if "clock" in before:
        # The recorded time of an operator's clear is by the earlier clock.
        before = [kind for kind in before if kind != "dismiss"]
    return [*before, "crash", *(kind for kind in kinds[at:] if kind not in {*_NOT_WITH_CRASH, "dismiss"})]


# Steps that are left out before a crash, and what a new aggregator does not get after them.
_LOST_IN_CRASH = {
    "driver": "when a node got its version", "clear": "the faults that are over",
    "silent": "which silent agents had reported", "leave": "which silent agents had reported",
    "unread": "the faults that cannot be read now",
}  # fmt: skip

# Steps that are left out before and after a crash, and what the two aggregators get at different times. After it,
# `dismiss` is left out as well: the new one may diagnose a fault a little later than an operator clears it.
_NOT_WITH_CRASH = {
    "create": "the age of an agent when a fault began", "reboot": "the age of an agent when a fault began",
    "late": "the heartbeat that confirms a report", "forge": "the heartbeat that replaces a report",
}  # fmt: skip

# Steps of a world with a crash, without those that are left out, and the most seconds after each: all are within the
# shortest window of a suppression.
_COMPARED_STEPS, _COMPARED_SECONDS = 8, 45.0

# The share of the worlds that run a second time, in which the aggregator restarts at the step `crash`; of
# those with injected faults; and of the steps on the nodes of the step before.
_COMPARED, _REHEARSED, _SAME_NODES = 0.25, 0.3, 0.35
_RARE = frozenset({"observe", "paused"})


def _step(kind: str, nodes: int, leaf: int, random: Random) -> Step:
    return Step(kind, _nodes(kind, nodes, leaf, random), _value(kind, random), random.choice(_SECONDS))


def _nodes(kind: str, nodes: int, leaf: int, random: Random) -> tuple[int, ...]:
    """Return random nodes: of a leaf, of a version or gang, or any few."""
    if kind in {
        "pause",
        "resume",
        "policy",
        "clock",
        "restart",
        "leader",
        "lose",
        "slow",
        "wait",
        "dismiss",
        "crash",
    }:
        return ()
    shape = random.random()
    if shape < 0.35 and kind not in {"delete", "create", "relabel"}:
        first = random.randrange(nodes // leaf) * leaf
        return tuple(range(first, first + random.randint(max(1, leaf // 2), leaf)))
    if shape < 0.55 and kind in {"fault", "clear", "silent", "return", "driver", "escalate", "unread"}:
        return tuple(
            sorted(random.sample(range(nodes), random.randint(min(5, nodes), max(5, nodes * 2 // 3))))
        )
    return tuple(sorted(random.sample(range(nodes), random.randint(1, 3))))


def _value(kind: str, random: Random) -> str:
    if kind in {"fault", "inject", "escalate"}:
        return random.choice(list(FAULTS))
    if kind == "clear":
        return random.choice(("", *FAULTS))
    if kind in {"silent", "cordon"}:
        return random.choice(("", "with its kubelet")) if kind == "silent" else ""
    if kind == "clock":
        return random.choice(_JUMPS)
    if kind == "policy":
        return random.choice(list(OPTIONS))
    if kind == "relabel":
        return random.choice(("rack r0", "leaf l0", "pool a", "pool b"))
    if kind == "driver":
        return random.choice(("580.1", "580.2"))
    return random.choice(FORGERIES) if kind == "forge" else ""
