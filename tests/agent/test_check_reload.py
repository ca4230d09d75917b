from __future__ import annotations

import threading

from nodeguard.agent.check_reload import CheckReload, LoadedChecks
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.failure import UserError
from tests.logs import LogLines
from tests.waiting import PATIENCE, until_async


async def test_reads_do_not_overlap_and_the_newest_is_adopted(log: LogLines) -> None:
    proceed, catalogues, adopted = threading.Event(), list[Catalogue](), list[Catalogue]()

    def read() -> LoadedChecks:
        proceed.wait(PATIENCE)
        catalogues.append(Catalogue())
        return catalogues[-1], {}

    reload = CheckReload(read, lambda catalogue, _: adopted.append(catalogue), 0.1)
    for _ in range(100):
        reload.request()
    assert catalogues == []
    proceed.set()
    await until_async(lambda: adopted)
    assert len(catalogues) == 2
    assert len(adopted) == 1
    assert adopted[0] is catalogues[1]
    # An operator sees at once that the request was carried out, and when the checks are used.
    read_line = {"level": "info", "msg": "checks read", "checks": 0, "adopted_in_seconds": 0.1}
    assert log.lines == [read_line, read_line, {"level": "info", "msg": "checks reloaded", "checks": 0}]


async def test_invalid_checks_are_refused_with_the_error(log: LogLines) -> None:
    def read() -> LoadedChecks:
        raise UserError("a.yaml:1: is invalid: fix it")

    CheckReload(read, lambda *_: None, 0.0).request()
    await until_async(lambda: log.lines)
    assert [(line["level"], line["error"]) for line in log.lines] == [
        ("error", "a.yaml:1: is invalid: fix it")
    ]
