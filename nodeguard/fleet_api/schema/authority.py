"""Schema of the certificate authorities of the aggregators."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

AuthorityStage = Literal["signing", "trusted", "published", "new", "expired"]


class AuthorityView(Struct, frozen=True):
    """A certificate authority. Times are RFC 3339, empty for none yet.

    state: `signing`; `trusted`: agents trust it, and it signs nothing now; `published`: agents read its
    certificate, and it signs from `signs_from` on; `new`: not published yet; `expired`. signs_from: empty for
    the one that signs.
    """

    state: AuthorityStage
    created: str
    published: str
    signs_from: str
    expires: str


class AuthorityList(Struct, frozen=True):
    """All authorities, oldest first. store: where they are stored. retired_from: when only the newest one is
    left; empty if it is the only one.
    """

    version: Literal[1]
    at: str
    store: str
    authorities: tuple[AuthorityView, ...]
    retired_from: str = ""
