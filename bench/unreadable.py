"""Every healthy recording, with each location that its sources read made unreadable: no finding may follow.

Of the recordings of faults only values are damaged: no check may fire of which the recording has no sign. For
each way of failing, one of the locations that differ in a number only (one of eight GPUs), or all with
`--every`. Prints the number of trials, the duration of one beside the recording as it is, and the findings.
Exits with 1 if there is any finding.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.fuzz.unreadable import Trial, healthy, without_hangs


def judged(task: tuple[Path, bool]) -> tuple[str, int, float, float, list[str]]:
    """Return the name of a recording, its damages, seconds of a healthy and a damaged trial, and findings."""
    directory, every = task
    trial = Trial(directory)
    is_healthy = directory in healthy()
    shapes = (trial.damages_by_shape if is_healthy else trial.values_by_shape).values()
    damages = [
        damage for members in shapes for damage in (members if every else members[len(members) // 2 :][:1])
    ]
    began = time.perf_counter()
    complaints = [f"healthy: {finding.check}" for _, finding in trial.judged(None) if is_healthy]
    reference = time.perf_counter() - began
    took = []
    for damage in damages:
        began = time.perf_counter()
        findings = trial.added(damage)
        took.append(time.perf_counter() - began)
        if findings:
            at, finding = findings[0]
            text = f"{finding.check} ({finding.health}) on {finding.target} at second {at:g}"
            complaints.append(f"{damage}: {text}")
    return trial.name, len(damages), reference, median(took or [0.0]), complaints


def main() -> int:
    """Evaluate all recordings, as many at a time as there are processors."""
    every = "--every" in sys.argv[1:]
    total, wrong = 0, 0
    with multiprocessing.Pool() as pool:
        for name, number, reference, took, complaints in pool.imap_unordered(
            judged, [(directory, every) for directory in without_hangs()]
        ):
            total, wrong = total + number, wrong + len(complaints)
            print(
                f"{name:<28}{number:>7} damages, {took * 1e3:5.0f} ms each (as is: {reference * 1e3:.0f} ms)"
            )
            for complaint in complaints:
                print(f"    {complaint}")
            sys.stdout.flush()
    print(f"{total} damages, {wrong} findings too many")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
