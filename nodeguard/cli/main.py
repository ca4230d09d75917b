"""The nodeguard command: finds the subcommand and keeps tracebacks from users."""

# An interrupt may come while modules are being imported: here is only what every Python has imported already,
# the rest comes under the handler in `main`.
from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_COMMANDS = {
    "check": "judge this machine, or a recorded one",
    "agent": "judge this machine all the time, and serve metrics",
    "aggregator": "hear the agents of a fleet, and keep work off what is sick",
    "release": "have the agent let go of the GPUs for a while",
    "clear": "tell the agent that a finding is over",
    "status": "say how the fleet is, by the aggregator",
    "incidents": "list what is wrong in the fleet, worst first",
    "explain": "say what a check or Xid means, or why a node is as it is",
    "pause": "mark nothing new in the fleet",
    "resume": "end a pause",
    "unmark": "take every mark of nodeguard's away",
    "checks": "list the checks, and validate your own",
    "policy": "check the file that says what the aggregator may mark",
    "backtest": "say what a policy would have marked, by what was told",
    "simulate": "say what a policy would do to a fleet, in virtual time",
    "record": "record what is read of this machine into a bundle",
}

# See usage.UNKNOWN, which an interrupt may keep from being imported.
_UNKNOWN = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given[:1] in (["agent"], ["aggregator"]):
            _outlive_hangups()
        from nodeguard.cli.dispatch import dispatch  # noqa: PLC0415 - see above

        return dispatch(_COMMANDS, given)
    except KeyboardInterrupt:
        name = f"nodeguard {given[0]}" if given and given[0] in _COMMANDS else "nodeguard"
        os.write(2, f"{name}: interrupted\n".encode())
        return _UNKNOWN


def _outlive_hangups() -> None:
    """Let nobody who has checks or a policy read again end what has not read them yet. What is executed
    meanwhile does not inherit this, as it would an order to ignore.
    """
    import signal  # noqa: PLC0415 - see above

    signal.signal(signal.SIGHUP, lambda *_: None)


if __name__ == "__main__":
    sys.exit(main())
