"""`.file` and `.loc`: which Python line an instruction comes from."""

from __future__ import annotations

import re

from cutesmith.emulator.ptx.syntax import Location
from cutesmith.emulator.ptx.tokens import Tokens

_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"((?:[^"\\\n]|\\.)*)"', re.M)
_Triple = tuple[int, int, int]


class Locations:
    """The files of a module and the location that is in force; `.file` may stand after its uses."""

    def __init__(self, text: str) -> None:
        self._files: dict[int, str] = {int(number): name.replace("\\\\", "\\") for number, name in _FILE.findall(text)}
        self._latest: dict[_Triple, Location] = {}
        self.current: Location | None = None

    def start_function(self) -> None:
        """Nothing is in force before the first `.loc` of a function."""
        self._latest.clear()
        self.current = None

    def read(self, tokens: Tokens) -> None:
        """`.loc file line column [, function_name label [+ offset]] [, inlined_at file line column]`, after `.loc`.

        A caller is the latest `.loc` of that triple, with its own callers. Line 0 means "no line": it changes nothing.
        """
        triple, caller = self._triple(tokens), None
        while tokens.accept(","):
            word = tokens.name("`function_name` or `inlined_at`")
            if word == "inlined_at":
                place = self._triple(tokens)
                caller = self._latest.get(place) or Location(self._file(place[0]), *place[1:])
            elif word == "function_name":
                if tokens.peek().startswith("."):
                    tokens.take()  # a section such as .debug_str
                else:
                    tokens.name("a function name")
                if tokens.accept("+"):
                    tokens.integer("an offset")
            else:
                tokens.refuse(f"`{word}` in `.loc` is neither `function_name` nor `inlined_at`")
        if triple[1]:
            self.current = self._latest[triple] = Location(self._file(triple[0]), triple[1], triple[2], caller)

    def _triple(self, tokens: Tokens) -> _Triple:
        file = tokens.integer("a file number")
        return file, tokens.integer("a line"), tokens.integer("a column")

    def _file(self, number: int) -> str:
        return self._files.get(number, f"file {number}")
