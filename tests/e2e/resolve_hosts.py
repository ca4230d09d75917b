"""A program that runs nodeguard with a hosts file of its own, in which Services of the cluster have addresses.

resolve_hosts.py FILE ARGUMENT...    FILE: lines of an address and a name, read at each lookup
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any


def use_hosts_file(file: Path) -> None:
    """Resolve the names of a file, and all Services, from that file only; other names as before."""
    resolve = socket.getaddrinfo

    def resolve_host(host: Any, *arguments: Any, **options: Any) -> Any:
        entries = [line.split() for line in file.read_text().splitlines()]
        addresses = [address for address, name in entries if name == host]
        if not addresses and not str(host).endswith(".svc"):
            return resolve(host, *arguments, **options)
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [info for address in addresses for info in resolve(address, *arguments, **options)]

    socket.getaddrinfo = resolve_host


if __name__ == "__main__":
    from nodeguard.cli.main import main

    use_hosts_file(Path(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
