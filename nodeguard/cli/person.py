"""Who is at the prompt."""

from __future__ import annotations

import os
import pwd


def user() -> str:
    """Who is at the prompt, behind sudo as well."""
    try:
        return os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
