from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from nodeguard.local.unix_socket import acquire_state_lock


def test_the_lock_is_exclusive_and_ends_with_its_process(tmp_path: Path) -> None:
    code = f"from nodeguard.local.unix_socket import acquire_state_lock; h = acquire_state_lock({str(tmp_path)!r}); print(h is not None, flush=True); input()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        assert acquire_state_lock(str(tmp_path)) is None
        elsewhere = acquire_state_lock(str(tmp_path / "other"))
        assert elsewhere is not None
        elsewhere.close()
        other.kill()
    held = acquire_state_lock(str(tmp_path))
    assert held is not None
    held.close()
