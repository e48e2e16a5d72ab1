"""Text that UTF-8 can hold: names of files may be any bytes, and a kernel may raise what it likes."""

from __future__ import annotations

from typing import Any


def encodable(value: Any) -> Any:
    """Plain data in which halves of surrogate pairs are spelt out with a backslash; all else is as it was."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {encodable(key): encodable(item) for key, item in value.items()}
    return [encodable(item) for item in value] if isinstance(value, (list, tuple)) else value
