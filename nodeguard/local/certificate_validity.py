"""Messages on certificates that are not valid at this time, which may be the fault of a clock. Pure."""

from __future__ import annotations

import ssl

from nodeguard.model.instant import rfc3339

# OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED.
_NOT_YET_VALID = 9
_EXPIRED = 10


def validity_problem(error: ssl.SSLCertVerificationError, wall: float) -> str:
    """Return why a certificate is not valid now, and the remedy; empty where its time is not the reason.

    wall: seconds since 1970 by the clock that it was checked with.
    """
    if error.verify_code == _NOT_YET_VALID:
        return f"is not valid yet {_clock(wall)}, else the clock of the machine that issued the certificate"
    return expired_problem(wall) if error.verify_code == _EXPIRED else ""


def expired_problem(wall: float, where: str = "this machine") -> str:
    """Return the problem of an expired certificate. where: the machine of the clock."""
    return f"has expired {_clock(wall, where)}, else renew the certificate"


def _clock(wall: float, where: str = "this machine") -> str:
    """Return the text on the clock; it has only the day, so that the same problem has the same text."""
    return f"by the clock of {where}, at which it is {rfc3339(wall)[:10]}: set that clock if it is wrong"
