from __future__ import annotations

import threading

from nodeguard.agent.check_reload import CheckReload, LoadedChecks
from nodeguard.agent.options import OptionsError
from nodeguard.agent.transitions import LogLine
from nodeguard.model.catalogue import Catalogue
from tests.waiting import PATIENCE, until_async


async def test_readings_come_one_at_a_time_and_the_newest_is_adopted() -> None:
    go_on, read, adopted, lines = threading.Event(), list[Catalogue](), list[Catalogue](), list[LogLine]()

    def look() -> LoadedChecks:
        go_on.wait(PATIENCE)
        read.append(Catalogue())
        return read[-1], {}

    reload = CheckReload(look, lambda catalogue, _: adopted.append(catalogue), 0.1, lines.append)
    for _ in range(100):
        reload.request()
    assert read == []
    go_on.set()
    await until_async(lambda: adopted)
    assert len(read) == 2
    assert len(adopted) == 1
    assert adopted[0] is read[1]
    assert lines == [{"event": "reloaded", "checks": 0}]


async def test_what_is_wrong_is_kept_out_with_the_reason() -> None:
    lines = list[LogLine]()

    def look() -> LoadedChecks:
        raise OptionsError("a.yaml:1: is wrong: mend it")

    CheckReload(look, lambda *_: None, 0.0, lines.append).request()
    await until_async(lambda: lines)
    assert lines == [{"event": "reload refused", "reason": "a.yaml:1: is wrong: mend it"}]
