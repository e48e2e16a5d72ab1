"""The version of the DSL that the references were written for, as the generated pages are stamped."""

from __future__ import annotations

import re

from cutesmith import resources

STAMPED = "api-core.md"
_STAMP = re.compile(r"nvidia-cutlass-dsl (\d[\w.]*)")


def written_for() -> str:
    """Such as "4.8.1"; empty where the page is missing or has no stamp. Raises UnavailableError without references."""
    page = resources.folder("references") / STAMPED
    found = _STAMP.search(page.read_text(encoding="utf-8")) if page.is_file() else None
    return found[1] if found else ""
