"""The front matter of a SKILL.md: the part of YAML that every client's parser reads in the same way, and no more.

Keys with a plain, quoted, folded (`>`) or literal (`|`) scalar, and one level of keys below a key. Anything that YAML
would read as something else (a plain scalar with `: ` or ` #` in it, a list, an anchor, a tab) is refused: the parser
of some client would drop the skill without a word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from cutesmith.errors import ContractError

Value = str | dict[str, str]

_KEY = re.compile(r"([A-Za-z][\w-]*):(?: +(.*))?$")
_NESTED = re.compile(r" +([\w.-]+): +(.*)$")
_NOT_PLAIN = re.compile(r"^[\s>|@`%&*!\[\]{}#,?'\"-]|: |:$| #")
_WORDS = re.compile(r"(?i:true|false|yes|no|on|off|null|~)|[-+]?[\d.]+")


@dataclass(frozen=True)
class FrontMatter:
    """The values by key, the line of each key, and the body with the line on which it starts."""

    values: dict[str, Value]
    body: str
    body_line: int
    lines: dict[str, int] = field(default_factory=dict)


class FrontMatterError(ContractError):
    """The front matter cannot be read; `line` counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message, hint="Quote a value that holds ': ' or ' #', or that looks like a number.")
        self.line = line


def read_front_matter(text: str) -> FrontMatter:
    """Split a SKILL.md into front matter and body; raises FrontMatterError."""
    lines = text.split("\n")
    if lines[0] != "---" or "---" not in lines[1:]:
        raise FrontMatterError("SKILL.md starts with a line ---, keys and values, and a line ---", 1)
    end = lines.index("---", 1)
    blocks: list[tuple[int, str, list[str]]] = []  # the line of a key, its text, the indented lines below it
    for number, line in enumerate(lines[1:end], 2):
        if blocks and (line.startswith(" ") or not line.strip()):
            blocks[-1][2].append(line)
        elif line.strip():
            blocks.append((number, line, []))
    matter = FrontMatter({}, "\n".join(lines[end + 1 :]), end + 2)
    for number, line, block in blocks:
        key = _KEY.match(line)
        if not key or key[1] in matter.values or "\t" in line:
            raise FrontMatterError(f"{line!r} is not `key: value`, or the key stands twice", number)
        matter.values[key[1]] = _value((key[2] or "").strip(), block, number)
        matter.lines[key[1]] = number
    return matter


def _value(head: str, block: list[str], number: int) -> Value:
    if head in (">", ">-", "|", "|-"):
        joint = " " if head[0] == ">" else "\n"
        return joint.join(line.strip() for line in block).strip()
    if head and any(line.strip() for line in block):
        raise FrontMatterError("a value of several lines starts with `>-` on the key's line", number + 1)
    if head:
        return _scalar(head, number)
    return dict(_nested(line, number + offset) for offset, line in enumerate(block, 1) if line.strip())


def _nested(line: str, number: int) -> tuple[str, str]:
    key = _NESTED.match(line)
    if not key:
        raise FrontMatterError(f"{line!r} is not `key: value`", number)
    return key[1], _scalar(key[2].strip(), number)


def _scalar(text: str, number: int) -> str:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        inner = text[1:-1]
        if text[0] == "'" and "'" not in inner.replace("''", ""):
            return inner.replace("''", "'")
        if text[0] == '"' and '"' not in inner and "\\" not in inner:
            return inner
    elif not _NOT_PLAIN.search(text) and not _WORDS.fullmatch(text):
        return text
    raise FrontMatterError(f"{text!r} is not read as this text by every YAML parser", number)
