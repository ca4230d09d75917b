"""The likelihood of votes with a fault that the nodes of a domain share. Pure."""

from __future__ import annotations

from math import log

# How probable it is that a domain fails. The more probable, the more often parts of a domain, or several
# domains of another topology, are named instead of one domain with other nodes. Assumed.
DOMAIN_FAILS = 0.003

# How probable it is that a node with a vote has the label of another domain. Assumed.
WRONG_LABEL = 0.02

# A domain is clear if its fault makes the votes so many times likelier than one of its parent, of its parts
# or of the whole fleet. Otherwise it is disputed. Of a parent that recovers, clear parts stay degraded.
CLEARLY_LIKELIER = 20.0


def shared_fault_evidence(voters: int, size: int, chance: float, counted: int | None = None) -> float:
    """Return how much likelier the votes in a domain are with one fault of it than without, as a logarithm.

    The fault shows on an unknown share of the nodes. voters: of `size` nodes; chance: probability that a node
    votes without the fault: by itself, or with a wrong label; counted: voters that nothing else explains, by
    default all.
    """
    if not voters:
        return 0.0
    explained = voters if counted is None else counted
    unexplained = (voters - explained) * log(voters / size)
    return _likelihood(voters, size) - unexplained - explained * log(chance) + log(DOMAIN_FAILS)


def two_shares_evidence(voters: int, size: int, all_voters: int, fleet: int) -> float:
    """Return how much likelier the votes of a fleet are if a domain has a larger share of them than the other
    nodes, than with one share for all, as a logarithm. voters: of `size` nodes; all_voters: in the fleet.
    """
    if voters * fleet <= all_voters * size:
        return 0.0
    others = _likelihood(all_voters - voters, fleet - size)
    return _likelihood(voters, size) + others - _likelihood(all_voters, fleet)


def _likelihood(voters: int, size: int) -> float:
    """Return the logarithm of the likelihood of votes with their own share."""
    if not 0 < voters < size:
        return 0.0
    share = voters / size
    return voters * log(share) + (size - voters) * log(1.0 - share)
