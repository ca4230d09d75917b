"""Every healthy recording with each place that its sources read unreadable: that nothing is held against it.

One of the places that differ in a number alone (one of eight GPUs) for each way of failing, or all with
`--every`. Prints how many were judged, how long one takes beside the healthy recording, and what was held
against a machine. Exit status 1 where anything was.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.fuzz.unreadable import Trial, by_shape, healthy


def judged(task: tuple[Path, bool]) -> tuple[str, int, float, float, list[str]]:
    """One recording: its name, number of damages, seconds of a healthy and of a damaged trial, complaints."""
    directory, every = task
    trial = Trial(directory)
    shapes = by_shape(trial.damages)
    damages = trial.damages if every else [members[len(members) // 2] for members in shapes.values()]
    began = time.perf_counter()
    complaints = [f"healthy: {one.check}" for _, one in trial.judged(None)]
    reference = time.perf_counter() - began
    took = []
    for damage in damages:
        began = time.perf_counter()
        found = trial.judged(damage)
        took.append(time.perf_counter() - began)
        if found:
            at, one = found[0]
            complaints.append(f"{damage}: {one.check} ({one.health}) on {one.target} at second {at:g}")
    return trial.name, len(damages), reference, median(took), complaints


def main() -> int:
    """Judge all recordings, as many at a time as there are processors."""
    every = "--every" in sys.argv[1:]
    total, wrong = 0, 0
    with multiprocessing.Pool() as pool:
        for name, number, reference, took, complaints in pool.imap_unordered(
            judged, [(directory, every) for directory in healthy()]
        ):
            total, wrong = total + number, wrong + len(complaints)
            print(
                f"{name:<28}{number:>7} damages, {took * 1e3:5.0f} ms each (healthy {reference * 1e3:.0f} ms)"
            )
            for complaint in complaints:
                print(f"    {complaint}")
            sys.stdout.flush()
    print(f"{total} damages, {wrong} held against a healthy machine")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
