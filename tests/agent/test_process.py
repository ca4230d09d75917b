from __future__ import annotations

import asyncio
import errno
from typing import Any

from nodeguard.agent.process import LoopErrorHandler
from nodeguard.agent.transitions import LogLine


def test_one_line_a_minute_for_each_kind() -> None:
    lines, now = list[LogLine](), [0.0]
    handler = LoopErrorHandler(lines.append, lambda: now[0])
    loop: Any = asyncio.AbstractEventLoop
    no_room = {"message": "socket.accept()", "exception": OSError(errno.EMFILE, "Too many open files")}
    for at in (0.0, 1.0, 61.0):
        now[0] = at
        handler(loop, no_room)
    handler(loop, {"message": "a task", "exception": KeyError("x")})
    handler(loop, {"message": "a callback", "exception": ValueError("Invalid file descriptor: -1")})
    assert [line["reason"] for line in lines] == [
        "Too many open files: raise the limit on open files",
        "Too many open files: raise the limit on open files",
        "please report it: a task: KeyError: 'x'",
    ]
