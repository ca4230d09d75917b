"""Entry points of `nodeguard` and of its kubectl plug-in: run a subcommand, and handle interrupts."""

# An interrupt may come during imports: this module imports only what every Python has imported already; the
# rest is imported under the handler in `main`.
from __future__ import annotations

import atexit
import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# 128 + SIGINT, as shells report it.
_INTERRUPTED = 130

# The interpreter searches all objects for cycles when it ends, which takes a tenth of a short command. The
# end of the process frees them all.
atexit.register(gc.freeze)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    return _run(arguments, "nodeguard")


def kubectl_main(arguments: Sequence[str] | None = None) -> int:
    """Run a command as the kubectl plug-in; returns its exit code."""
    return _run(arguments, "kubectl nodeguard")


def _run(arguments: Sequence[str] | None, program: str) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if words[:1] in (["agent"], ["aggregator"]):
            _survive_hangups()
            gc.disable()  # until the service has started: what a start makes lives until the end
        from nodeguard.cli.dispatch import dispatch  # noqa: PLC0415 - see above

        return dispatch(words, program)
    except KeyboardInterrupt:
        name = f"{program} {words[0]}" if words and words[0].isalpha() else program
        os.write(2, f"{name}: interrupted\n".encode())
        return _INTERRUPTED
    finally:
        gc.enable()


def _survive_hangups() -> None:
    """Ignore SIGHUP until the service handles it: a reload request must not end a service that is starting.

    A handler, since child processes would inherit an ignored signal.
    """
    import signal  # noqa: PLC0415 - see above

    signal.signal(signal.SIGHUP, lambda *_: None)


if __name__ == "__main__":
    sys.exit(main())
