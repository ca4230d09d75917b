"""A million damaged inputs at the parsers and the judge: how many a second, and that none gets through."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.fuzz.campaign import SHARES

INPUTS = 1_000_000


def main() -> None:
    """Run every campaign."""
    for campaign, share in SHARES.items():
        began = time.perf_counter()
        tried = campaign(INPUTS * share // 100, 1)
        took = time.perf_counter() - began
        rate = f"{tried / took:8.0f} a second, no crash"
        print(f"{campaign.__name__:<14}{tried:>9} inputs in {took:6.1f} s, {rate}")


main()
