"""Runs nodeguard where Services and other machines have names. A program of its own.

resolving.py NAMES WORD...    NAMES: a file with lines of a number and a name, read at each question
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any


def resolve_by(names: Path) -> None:
    """Find Services of the cluster and the names of a file in that file, and everything else as ever."""
    ask = socket.getaddrinfo

    def found(host: Any, *words: Any, **more: Any) -> Any:
        known = [line.split() for line in names.read_text().splitlines()]
        numbers = [number for number, name in known if name == host]
        if not numbers and not str(host).endswith(".svc"):
            return ask(host, *words, **more)
        if not numbers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [one for number in numbers for one in ask(number, *words, **more)]

    socket.getaddrinfo = found


if __name__ == "__main__":
    from nodeguard.cli.main import main

    resolve_by(Path(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
