"""Signal dispositions of processes that a test starts.

A shell without job control starts `make test &` with SIGINT ignored, services and schedulers may ignore more, and
a program inherits what its parent ignores: a process that a test interrupts must not depend on how the tests were
started.
"""

from __future__ import annotations

# Runs the command that follows in the same process, with the default dispositions of these signals (coreutils 8.31).
INTERRUPTIBLE = ("env", "--default-signal=INT,QUIT")
