from __future__ import annotations

import errno
from typing import Any

from nodeguard.agent.process import log_loop_error
from tests.logs import LogLines


def test_an_error_of_the_event_loop_is_logged_once(log: LogLines) -> None:
    loop: Any = None
    for _ in range(3):
        log_loop_error(
            loop, {"message": "socket.accept()", "exception": OSError(errno.EMFILE, "Too many open files")}
        )
    log_loop_error(loop, {"message": "a task", "exception": KeyError("x")})
    assert [(line["msg"], line["error"]) for line in log.lines] == [
        ("too many open files, raise the limit", "Too many open files"),
        ("error in the event loop, please report it", "a task: KeyError: 'x'"),
    ]


def test_an_accept_on_a_closed_server_is_not_logged(log: LogLines) -> None:
    loop: Any = None
    log_loop_error(loop, {"message": "a callback", "exception": ValueError("Invalid file descriptor: -1")})
    assert log.lines == []
