"""What `printf` in a kernel prints: the format of C, and the argument buffer that `vprintf` reads on the device.

Arguments lie in the buffer one after another, each at its natural alignment: integers of 4 or 8 bytes by their length
modifier, every float as a double, pointers of 8 bytes (CUDA C++ Programming Guide, "Formatted Output").
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

_SPECIFIER = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\*|\d+)?(?:\.(?P<precision>\*|\d+)?(?P<dot>))?(?P<length>hh|h|ll|l|j|z|t|L)?"
    r"(?P<conversion>[diouxXeEfFgGaAcsp%])"
)
_TRAILING_ZEROS = re.compile(r"\.?0+(?=p)")
_WIDE = ("l", "ll", "j", "z", "t")


@dataclass
class ArgumentBuffer:
    """Reads a lane's arguments in order: `read(offset, size)` gives bytes of the buffer."""

    read: Callable[[int, int], bytes]
    offset: int = 0

    def take(self, size: int) -> bytes:
        """The next argument of `size` bytes."""
        self.offset = -(-self.offset // size) * size
        data = self.read(self.offset, size)
        self.offset += size
        return data

    def integer(self, size: int = 4, *, signed: bool = True) -> int:
        """The next integer."""
        return int.from_bytes(self.take(size), "little", signed=signed)

    def double(self) -> float:
        """The next float."""
        return float(struct.unpack("<d", self.take(8))[0])


def format_text(template: str, buffer: ArgumentBuffer, string_at: Callable[[int], str]) -> str:
    """The printed text; `string_at` reads the C string at an address. Everything else is printed unchanged."""
    return _SPECIFIER.sub(lambda match: _converted(match, buffer, string_at), template)


def _converted(match: re.Match[str], buffer: ArgumentBuffer, string_at: Callable[[int], str]) -> str:
    conversion = match["conversion"]
    if conversion == "%":
        return "%"
    width = str(buffer.integer()) if match["width"] == "*" else match["width"] or ""
    dot = match["dot"] is not None
    precision = str(buffer.integer()) if match["precision"] == "*" else match["precision"] or "0"
    spec = f"%{match['flags']}{width}{f'.{precision}' if dot else ''}"
    if conversion in "eEfFgG":
        return str(f"{spec}{conversion}" % buffer.double())
    if conversion in "aA":
        text = _TRAILING_ZEROS.sub("", buffer.double().hex())
        return text.upper() if conversion == "A" else text
    if conversion == "s":
        return str(f"{spec}s" % string_at(buffer.integer(8, signed=False)))
    if conversion == "c":
        return str(f"{spec}s" % chr(buffer.integer() & 0xFF))
    if conversion == "p":
        return str(f"{spec}s" % hex(buffer.integer(8, signed=False)))
    signed = conversion in "di"
    value = buffer.integer(8 if match["length"] in _WIDE else 4, signed=signed)
    if bits := {"hh": 8, "h": 16}.get(match["length"], 0):
        value &= (1 << bits) - 1
        value -= (1 << bits) if signed and value >> (bits - 1) else 0
    return str(f"{spec}{'d' if conversion == 'u' else conversion}" % value)
