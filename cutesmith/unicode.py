"""Text from elsewhere that is to be written, printed or shown: a kernel raises what it likes, names are any bytes."""

from __future__ import annotations

import re
from typing import Any

_SEQUENCES = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]")
_LINE_ENDS = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""Controls, what turns the direction of text around, what has no width, and halves of surrogate pairs."""


def encodable(value: Any) -> Any:
    """Plain data in which halves of surrogate pairs are spelt out with a backslash; all else is as it was."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {encodable(key): encodable(item) for key, item in value.items()}
    return [encodable(item) for item in value] if isinstance(value, (list, tuple)) else value


def displayable(text: str) -> str:
    """The text for a page: a control character as its picture (U+2400…), what else cannot be seen as U+FFFD."""
    return _UNSEEN.sub(lambda found: _picture(ord(found[0])), text.replace("\r\n", "\n"))


def plain_text(text: str) -> str:
    """The text for a terminal: displayable, and without the sequences that one acts on.

    The DSL colours its errors, and a kernel could move the cursor and write a verdict of its own over ours.
    """
    return displayable(_LINE_ENDS.sub("\n", _SEQUENCES.sub("", text)))


def _picture(code: int) -> str:
    return chr(0x2400 + code) if code < 0x20 else "\ufffd"
