"""The view of the certificate authorities, for operators. Pure."""

from __future__ import annotations

from math import inf

from nodeguard.aggregator.certificates.rotation import (
    AuthorityState,
    CertificateAuthority,
    retired_from,
    signing_authority,
    signs_from,
)
from nodeguard.fleet_api.schema.authority import AuthorityList, AuthorityStage, AuthorityView
from nodeguard.model.instant import rfc3339


def authority_list(state: AuthorityState, store: str, now: float) -> AuthorityList:
    """Return the view of a state. store: its name. now: seconds since 1970."""
    signing = signing_authority(state, now)
    return AuthorityList(
        1,
        rfc3339(now),
        store,
        tuple(_view(authority, now, is_signing=authority == signing) for authority in state.authorities),
        _time(retired_from(state)) if len(state.authorities) > 1 else "",
    )


def _view(authority: CertificateAuthority, now: float, *, is_signing: bool) -> AuthorityView:
    signs_at = signs_from(authority)
    return AuthorityView(
        "signing" if is_signing else _stage(authority, signs_at, now),
        _time(authority.created_at),
        _time(authority.published_at),
        "" if is_signing else _time(signs_at),
        _time(authority.expires_at),
    )


def _stage(authority: CertificateAuthority, signs_at: float, now: float) -> AuthorityStage:
    """Return the stage of an authority that does not sign."""
    if now >= authority.expires_at:
        return "expired"
    if signs_at == inf:
        return "new"
    return "published" if now < signs_at else "trusted"


def _time(seconds: float) -> str:
    return "" if seconds in {0.0, inf} else rfc3339(seconds)
