"""PTX text as a list of tokens with a cursor; comments are gone, lines are known."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NoReturn

from cutesmith.emulator.errors import PtxSyntaxError

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.S)
_TOKEN = re.compile(
    rf"""
    {_STRING}
  | (?: %?[A-Za-z_$] | \. ) [\w$.]* (?: :: [\w$.]+ )*     # names, opcodes, directives
  | \d+ \. \d* (?: [eE] [+-]? \d+ )? | \d+ [eE] [+-]? \d+ (?!\w) | \d\w*
  | << | >> | <= | >= | == | != | && | \|\|
  | \S
    """,
    re.X,
)
# LLVM counts lines on through inline assembly, as if each line of it were one of the Python file.
_ASSEMBLY = re.compile(r"// begin inline asm\n.*?// end inline asm", re.S)
_LOCATION = re.compile(r"^\s*\.loc\b[^\n]*", re.M)
_EXCERPT = 60


class Tokens:
    """The tokens of `text`, ended by an empty one; `position` is the next to read."""

    __slots__ = ("text", "items", "starts", "position", "_newlines")

    def __init__(self, text: str) -> None:
        located = _ASSEMBLY.sub(lambda assembly: _LOCATION.sub(_blank, assembly.group()), text)
        self.text = _COMMENT.sub(_blank, located)
        matches = list(_TOKEN.finditer(self.text))
        self.items = [match.group() for match in matches] + [""]
        self.starts = [match.start() for match in matches] + [len(text)]
        self.position = 0
        self._newlines = [match.start() for match in re.finditer("\n", text)]

    def peek(self, ahead: int = 0) -> str:
        """The token that many places further on; empty at the end of the text."""
        place = self.position + ahead
        return self.items[place] if place < len(self.items) else ""

    def take(self) -> str:
        """The next token; the cursor moves past it."""
        token = self.items[self.position]
        self.position += bool(token)
        return token

    def accept(self, token: str) -> bool:
        """Whether the next token is this one; if so the cursor moves past it."""
        if self.items[self.position] != token:
            return False
        self.position += 1
        return True

    def expect(self, token: str, where: str) -> None:
        """Move past this token; PtxSyntaxError if something else stands there."""
        if self.items[self.position] != token:
            self.fail(f"`{token}` {where}")
        self.position += 1

    def name(self, what: str) -> str:
        """A name such as `%r1`, `$L__BB0_2` or `param0`."""
        token = self.items[self.position]
        if not token or token[0] in '."' or not (token[0] in "%_$" or token[0].isalpha()) or token == "%":
            self.fail(what)
        self.position += 1
        return token

    def dotted(self, what: str) -> str:
        """A word such as `.b32`, without its dot."""
        token = self.items[self.position]
        if len(token) < 2 or token[0] != ".":
            self.fail(what)
        self.position += 1
        return token[1:]

    def integer(self, what: str) -> int:
        """A literal without sign, in any base."""
        value = integer(self.items[self.position])
        if value is None:
            self.fail(what)
        self.position += 1
        return value

    def line(self, position: int | None = None) -> int:
        """The 1-based line of the next token, or of the one at `position`."""
        return bisect_right(self._newlines, self.starts[self.position if position is None else position] - 1) + 1

    def fail(self, expected: str) -> NoReturn:
        """Raise PtxSyntaxError: what was expected at the cursor, and what stands there."""
        found = f"`{self.peek()[:_EXCERPT]}`" if self.peek() else "the end of the text"
        self.refuse(f"expected {expected}, found {found}")

    def refuse(self, what: str) -> NoReturn:
        """Raise PtxSyntaxError about the line of the cursor."""
        number = self.line()
        start = self._newlines[number - 2] + 1 if number > 1 else 0
        excerpt = self.text[start:].partition("\n")[0].strip()[:_EXCERPT]
        raise PtxSyntaxError(
            f"PTX line {number}: {what} (`{excerpt}`)",
            hint="The emulated GPU reads PTX of the DSL's compiler; look at inline assembly in the kernel first.",
        )


def integer(token: str) -> int | None:
    """The value of `12`, `0x1F`, `017`, `0b101` or any of them with the suffix U; None for anything else."""
    digits = token[:-1] if token.endswith("U") else token
    if not digits[:1].isdigit() or "_" in digits:
        return None
    base = {"0x": 16, "0X": 16, "0b": 2, "0B": 2}.get(digits[:2], 8 if digits[0] == "0" else 10)
    try:
        return int(digits, base)
    except ValueError:
        return None


def _blank(match: re.Match[str]) -> str:
    found = match.group()
    return found if found[0] == '"' else "".join("\n" if character == "\n" else " " for character in found)
