"""The parts of the aggregator, and the share of the CPU time of each. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

LOOP = "event loop, reads of sockets"
OTHER = "other"

# The part of a function, by a piece of its path and name. The innermost function that has one decides; those
# of the fleet and of libraries have none, so that their callers decide.
PARTS = (
    ("cpu_profile/sampler.py:collected", "garbage collection"),
    ("sslproto.py:_process_outgoing", "writes to sockets"),
    ("asyncio/sslproto.py", "TLS"),
    ("/ssl.py", "TLS"),
    ("aggregator/ingest/tls.py", "TLS"),
    ("aggregator/identity/", "tokens"),
    ("aggregator/ingest/read_turns.py", "HTTP, limits"),
    ("aggregator/ingest/", "HTTP, limits"),
    ("nodeguard/wire/", "messages"),
    ("aggregator/report_handler.py", "messages"),
    ("aggregator/history/", "history"),
    ("local/logs.py", "log"),
    ("/logging/", "log"),
    ("/prometheus_client/", "metrics"),
    ("aggregator/metrics.py", "metrics"),
    ("aggregator/service_collector.py", "metrics"),
    ("aggregator/mark_counter.py", "metrics"),
    ("nodeguard/kube/lease.py", "lease"),
    ("nodeguard/kube/", "watches, writes"),
    ("aggregator/backends/", "watches, writes"),
    ("aiohttp/client", "watches, writes"),
    ("aiohttp/connector.py", "watches, writes"),
    ("aggregator/pages/", "views"),
    ("aggregator/api/", "views"),
    ("nodeguard/fleet_api/", "views"),
    ("aiohttp/web", "views"),
    ("aggregator/service.py", "plans"),
    ("asyncio/runners.py", LOOP),
)


def part(stack: str) -> str:
    """Return the part of a stack, as the sampler writes it."""
    for function in reversed(stack.split(";")):
        for piece, name in PARTS:
            if piece in function:
                return name
    return OTHER


def count_parts(lines: Iterable[str]) -> Counter[str]:
    """Return the samples of each part. lines: as the sampler writes them. Raises ValueError."""
    counts: Counter[str] = Counter()
    for line in lines:
        stack, _, count = line.rpartition(" ")
        counts[part(stack)] += int(count)
    return counts
