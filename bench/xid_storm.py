"""Cost of one reading full of Xids, and its growth with their number.

`python bench/xid_storm.py`. Derivation and judgement run in the agent's event loop. First: 1,000 and 20,000
Xids, which no source delivers in one reading, for the ratio. Then what the source of the kernel log makes of
20,000 and of 200,000 lines: the most that one reading costs. Beside it: encoding the same readings as JSON
with msgspec, in the same run.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from statistics import median

import msgspec

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.judge import timed
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.derive import PlatformHints, derive
from nodeguard.derive.state import DeriveState, plan_derivation
from nodeguard.judge.judge import JudgeSettings, judge
from nodeguard.judge.rules import compile_rules
from nodeguard.judge.state import JudgeState
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Event, Observation, Reading
from nodeguard.sources.kmsg import KmsgSource
from nodeguard.sources.machine import LogRecords
from tests.sources.fake_machine import FakeMachine

GPUS, CODES, SINGLE = 8, 180, 64
ROUNDS = 7
NOW = Instant(1.8e9, 1060.0, "boot")
CATALOGUE, SIGNALS = load_catalogue()
WANTED, RULES = plan_derivation(CATALOGUE, SIGNALS), compile_rules(CATALOGUE, SIGNALS)


def main() -> None:
    """Print the figures."""
    took = {number: row(f"{number:,} Xids", reading(number)) for number in (1_000, 20_000)}
    print(f"{'ratio of 20,000 to 1,000':<32}{took[20_000] / took[1_000]:8.1f} times (20 is linear)")
    for number in (20_000, 200_000):
        row(f"one reading of {number:,} lines", logged(number))


def row(name: str, input_reading: Reading) -> float:
    """Print the costs of one reading. Returns seconds of derivation and judgement together."""
    derived = median(timed(lambda: derived_of(input_reading))[1] for _ in range(ROUNDS))
    result = derived_of(input_reading)
    judged = median(timed(lambda: judged_of(result))[1] for _ in range(ROUNDS))
    encoded = median(timed(lambda: msgspec.json.encode(input_reading))[1] for _ in range(ROUNDS))
    events = sum(len(observation.events) for observation in input_reading.observations)
    print(f"{name:<32}{events:8,} events  derive {derived * 1000:7.1f} ms  judge {judged * 1000:7.1f} ms"
          f"  as JSON {encoded * 1000:6.1f} ms")  # fmt: skip
    return derived + judged


def derived_of(source: Reading) -> tuple[Reading, ...]:
    """Return the derived readings of a reading, without earlier state."""
    return derive(WANTED, DeriveState(), [source], NOW, PlatformHints())[1].readings


def judged_of(readings: tuple[Reading, ...]) -> object:
    """Return the verdict of derived readings, without earlier state."""
    return judge(RULES, JudgeState(), readings, NOW, JudgeSettings())


def codes(number: int) -> list[tuple[str, int, float]]:
    """Bus address, code and time of each Xid: every GPU reports every code."""
    return [
        (f"0000:{place % GPUS:02x}:00", place // GPUS % CODES + 1, 1000.0 + 60.0 * place / number)
        for place in range(number)
    ]


def reading(number: int) -> Reading:
    """A reading of so many Xids as events, in observations of at most SINGLE."""
    events: dict[str, list[Event]] = {}
    for address, code, at in codes(number):
        fields: dict[str, str | int | float | bool] = {"xid": code, "rest": "pid=1, name=train, Ch 1"}
        events.setdefault(f"gpu/{address}", []).append(Event("gpu.xid.line", at, "text", fields))
    observations = tuple(
        Observation("kmsg", slot, events=tuple(row[start : start + SINGLE]))
        for slot, row in events.items()
        for start in range(0, len(row), SINGLE)
    )
    return Reading("kmsg", NOW.mono, observations)


class Storm(FakeMachine):
    """A machine with a number of Xid lines in its kernel log."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._log = LogRecords(
            tuple(
                f"3,{place},{at * 1e6:.0f},-;NVRM: Xid (PCI:{address}): {code}, pid=1, name=train, Ch 1"
                for place, (address, code, at) in enumerate(codes(number))
            )
        )

    def log(self, within: float = math.inf) -> LogRecords:
        """See Machine.log; the same lines each time, however much time there is."""
        assert within > 0
        return self._log


def logged(number: int) -> Reading:
    """What the source of the kernel log reads of so many lines."""
    return Reading("kmsg", NOW.mono, tuple(KmsgSource(CATALOGUE.patterns).read(Storm(number))))


if __name__ == "__main__":
    main()
