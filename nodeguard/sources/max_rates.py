"""The most that counters of hardware can rise in a second. A faster increase is a misreading, not a fault."""

from __future__ import annotations

# Packets of a link of 800 Gb/s with 2 KiB each; a link on which every packet is bad does not stay up.
PACKETS = 50e6

# Trainings of a port's link: InfiniBand and Ethernet need more than 100 ms for one.
PORT_TRAININGS = 10.0

# Recoveries of a link that stays up: the retraining of an NVLink or InfiniBand lane takes more than 100 µs.
LINK_RECOVERIES = 10e3

# Replays and corrected errors: each costs a round trip on the link, or an access of the memory's controller.
CORRECTED = 1e6

# Errors that the kernel or driver handles one by one, by an interrupt, and that end no more than a request.
HANDLED = 100e3

# Errors that end a process or need a repair: the driver stops what uses the part before it goes on.
UNCORRECTED = 1e3

# Errors after which a link is down until it is trained or reset again.
FATAL = 10.0

# Seconds that a second adds to a duration. One is exact, but a driver may publish durations in coarse steps.
SECONDS = 10.0
