"""Hook of MkDocs: what the search of the site finds.

The theme's search has an entry for each heading and no setting for a page. Records of decisions hide the
guides that describe the same subject, and seven entries for each check hide its page.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_CHECKS = "reference/checks/"
_DECISIONS = "decisions/"


def on_post_build(config: Any) -> None:
    """Remove the entries from the index that the search plug-in has written."""
    path = Path(config.site_dir) / "search" / "search_index.json"
    index = json.loads(path.read_text("utf-8"))
    index["docs"] = [entry for entry in index["docs"] if is_searched(entry["location"])]
    path.write_text(json.dumps(index, ensure_ascii=False), "utf-8")


def is_searched(location: str) -> bool:
    """Return whether the search finds a page or a section. location: its path, with its anchor."""
    is_section_of_check = location.startswith(_CHECKS) and "#" in location
    return not location.startswith(_DECISIONS) and not is_section_of_check
