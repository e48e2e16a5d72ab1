"""What both sides of a verification are asked, and how values are described that go from one process to another.

A tensor travels as a file that holds the bytes its strides span, gaps included, so that the other side sees the very
same layout. Imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.sandbox.messages import Request

WHOLE = 1 << 62  # bytes of a file where tensors never travel in chunks


@dataclass(frozen=True)
class Scalar:
    """A Python bool, int or float by the name of its type and its exact text: JSON has no infinity.

    Of type "option": an option or the nesting of the values, as `problems.arguments` encodes them.
    """

    type: str
    text: str


@dataclass(frozen=True)
class TensorLayout:
    """A tensor without its bytes; strides in elements."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    misaligned_bytes: int


@dataclass(frozen=True)
class TensorFile(TensorLayout):
    """A tensor, the file that holds its bytes or that they were offered under, and how many they are."""

    file: str
    bytes: int


Value = Scalar | TensorFile


@dataclass(frozen=True)
class Start(Request[None]):
    """Bring up libraries and device, which takes seconds that are not the file's.

    `largest_file`: bytes of a tensor that goes through a file of its own. `orders`: see the emulator's Settings.
    """

    device: str
    arch: str = ""
    largest_file: int = WHOLE
    orders: int = 1


@dataclass(frozen=True)
class Give(Request[None]):
    """Write the chunk of an offered tensor that begins at a byte; the last one ends the offer, unless `keep`."""

    file: str
    begin: int
    keep: bool = False


@dataclass(frozen=True)
class Take(Request[str]):
    """Read the chunk of a large tensor that begins at a byte.

    The reply says why the file is not what was written there; it is empty where it is.
    """

    tensor: TensorFile
    begin: int
