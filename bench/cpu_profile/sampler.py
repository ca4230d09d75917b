"""Runs nodeguard, and samples the stack of its main thread by CPU time of the process.

`python bench/cpu_profile/sampler.py FILE COMMAND...`. SIGUSR1 writes the samples since the previous one to
FILE: a line for each stack, the outermost function first, and its number of samples.

The handler of a signal runs at the next step of Python code. At the first step of a function, the time before
it belongs to the caller: it was spent in C, such as in the event loop.
"""

from __future__ import annotations

import dis
import gc
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

from nodeguard.cli.main import main

# CPU seconds between two samples: one tick of a kernel with 250 a second.
INTERVAL = 0.004

_RESUME = dis.opmap["RESUME"]


def sample(stacks: Counter[str], frame: FrameType | None) -> None:
    """Count the stack of a frame."""
    if (
        frame is not None
        and frame.f_code.co_code[frame.f_lasti] == _RESUME
        and frame.f_code is not collected.__code__
    ):
        frame = frame.f_back
    names = []
    while frame is not None:
        names.append(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")
        frame = frame.f_back
    stacks[";".join(reversed(names))] += 1


def collected(_phase: str, _info: dict[str, int]) -> None:
    """Mark the time of garbage collection: its samples are taken at the first step of this function."""


def run(file: Path) -> None:
    """Run nodeguard with the arguments of the command line."""
    stacks: Counter[str] = Counter()

    def write(_number: int, _frame: FrameType | None) -> None:
        new = file.with_suffix(".new")
        new.write_text("".join(f"{stack} {count}\n" for stack, count in stacks.items()))
        new.rename(file)
        stacks.clear()

    signal.signal(signal.SIGUSR1, write)
    signal.signal(signal.SIGPROF, lambda _, frame: sample(stacks, frame))
    gc.callbacks.append(collected)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
    main()


if __name__ == "__main__":
    path = Path(sys.argv[1])
    sys.argv[:2] = ["nodeguard"]
    run(path)
