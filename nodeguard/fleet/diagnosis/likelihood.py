"""The likelihood of votes with a fault that the nodes of a domain share. Pure."""

from __future__ import annotations

from math import log

# How probable it is that a domain fails. The more probable, the more often parts of a domain, or several
# domains of another topology, are named instead of one domain with other nodes. Assumed.
DOMAIN_FAILS = 0.003

# How probable it is that a node with a vote has the label of another domain. Assumed.
WRONG_LABEL = 0.02


def shared_fault_evidence(voters: int, size: int, chance: float, counted: int | None = None) -> float:
    """Return how much likelier the votes in a domain are with one fault of it than without, as a logarithm.

    The fault shows on an unknown share of the nodes. voters: of `size` nodes; chance: probability that a node
    votes without the fault: by itself, or with a wrong label; counted: voters that nothing else explains, by
    default all.
    """
    if not voters:
        return 0.0
    share, silent = voters / size, size - voters
    gain = (voters if counted is None else counted) * (log(share) - log(chance))
    return gain + (silent * log(1.0 - share) if silent else 0.0) + log(DOMAIN_FAILS)
