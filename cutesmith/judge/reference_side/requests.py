"""What the process of the problem is asked, and its replies."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.judge.draws.derived_case import DerivedCase
from cutesmith.judge.transfer.requests import Scalar, TensorFile, TensorLayout, Value
from cutesmith.sandbox.messages import Request
from cutesmith.verdicts import InputKind, OutputError, Precision, Violation


@dataclass(frozen=True)
class LongSize:
    """A size that a longer case keeps whole: on these `axes` alone (input, dimension), without any wherever it is.

    `argument`: of `get_inputs`, which EMULATED_SIZES has smaller.
    """

    size: int
    axes: tuple[tuple[int, int], ...] = ()
    argument: str = ""

    @property
    def words(self) -> str:
        """Such as "size 8192", "tokens = 8192", "dimension 1 of input 0, 0 of input 1 (8192)"."""
        if self.argument:
            return f"{self.argument} = {self.size}"
        if not self.axes:
            return f"size {self.size}"
        return f"dimension {', '.join(f'{axis} of input {number}' for number, axis in self.axes)} ({self.size})"


@dataclass(frozen=True)
class Loaded:
    """The number of input sets, and whether derived cases may have other shapes.

    `long_sizes` and `elements` of `get_inputs()` where it is made smaller for the emulated GPU. `confinement`: its
    layers that held, empty for a trusted problem.
    """

    sets: int
    shapes: bool
    long_sizes: tuple[LongSize, ...] | None = None
    elements: int = 0
    confinement: dict[str, bool] | None = None

    @property
    def resizable(self) -> bool:
        """Whether sizes may change on the emulated GPU: the contract promises others, or they were shrunk already."""
        return self.shapes if self.long_sizes is None else bool(self.long_sizes)


@dataclass(frozen=True)
class Load(Request[Loaded]):
    """Run the problem's part of a file.

    `readable`: further files that the user named. `exchanges`: folders for tensors, as that around its own.
    """

    device: str
    path: str
    seed: int
    arch: str = ""
    readable: tuple[str, ...] = ()
    exchanges: tuple[str, ...] = ()


@dataclass(frozen=True)
class Planned:
    """The derived cases, and the kinds of the inputs with the draws that change each.

    `left`: names of the cases of which a quick plan has no draw, or not all.
    """

    cases: tuple[DerivedCase, ...]
    kinds: tuple[InputKind, ...]
    left: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan(Request[Planned]):
    """Tell the derived cases, by the inputs and what the reference does with them; `quick`: few of values."""

    shapes: bool
    quick: bool


@dataclass(frozen=True)
class Drawn:
    """The inputs of a case as files, or why the reference refuses them.

    `size` and `ran_as` tell a person how many elements there are, and as what the largest input ran; where the file
    draws more, they `stand_for` that; `changed` which inputs a draw of values changed, and by how much. `whole`: those
    of `get_inputs()` at full size where these are some of their elements, with whatever values. `shorter`: sizes
    are those that were asked for instead.
    """

    accepted: bool
    why: str = ""
    inputs: tuple[Value, ...] = ()
    summary: str = ""
    elements: int = 0
    size: str = ""
    ran_as: tuple[str, ...] = ()
    stand_for: str = ""
    changed: str = ""
    whole: str = ""
    shorter: bool = False


@dataclass(frozen=True, kw_only=True)
class Draw(Request[Drawn]):
    """Draw the inputs of a case under a key, those of `get_inputs()` with `index` -1.

    `derive` names a draw of a derived case. The inputs under the keys to `forget` are not needed any more.
    `longer` keeps that size whole,
    `beyond` has so many elements; then `elements` bounds the inputs, and with `columns` these may change. With
    `some_blocks` the reference may take longer, as not all blocks run. `resized`: sizes of the inputs, and those that
    they get instead; draws that set sizes themselves leave it out. `own_sizes`: a draw of layouts leaves sizes alone.
    """

    key: str
    seed: int
    folder: str
    index: int = -1
    derive: str = ""
    forget: tuple[str, ...] = ()
    longer: LongSize | None = None
    beyond: int = 0
    elements: int = 0
    columns: bool = False
    some_blocks: bool = False
    resized: tuple[tuple[int, int], ...] = ()
    own_sizes: bool = False


@dataclass(frozen=True)
class FullInputs:
    """`get_inputs()` at full size, values only where host code may read them."""

    inputs: tuple[Scalar | TensorFile | TensorLayout, ...]
    summary: str


@dataclass(frozen=True)
class FullSize(Request[FullInputs]):
    """Describe `get_inputs()` at full size, as a call of which only the launches are recorded needs it."""

    folder: str


@dataclass(frozen=True)
class LaidOut:
    """Layouts of inputs and outputs; the latter are None where the reference needs values."""

    inputs: tuple[Scalar | TensorLayout, ...]
    summary: str
    outputs: tuple[TensorLayout, ...] | None
    is_tuple: bool = False


@dataclass(frozen=True)
class Layout(Request[LaidOut]):
    """Describe the inputs of one set and what the reference returns for them, without values."""

    index: int


@dataclass(frozen=True)
class TypesSeen:
    """`own_tolerance`: the file that sets the tolerances is the kernel's own."""

    types: tuple[str, ...]
    own_tolerance: bool


@dataclass(frozen=True)
class Types(Request[TypesSeen]):
    """Tell the types that the reference computes with on the inputs under a key.

    It takes one more run of the reference. Without `always`, only for a kernel's own file that sets tolerances.
    """

    key: str
    always: bool


@dataclass(frozen=True)
class Judged:
    """What the reference's side says of a call's outputs.

    `note`: what was allowed beyond the tolerance. `rounded`: it is right only since float32 convolutions may round to
    tf32. `sums`: checksums of large outputs, empty for others. `decided`: some element could be judged.
    """

    violation: Violation | None
    outputs: tuple[OutputError, ...] = ()
    note: str = ""
    sums: tuple[str, ...] = ()
    rounded: bool = False
    decided: bool = True


@dataclass(frozen=True, kw_only=True)
class Tolerances:
    """Relative and absolute tolerance, None for those of the file or of the dtype; `derived` and `default` as there.

    `precision`: of factors of products and convolutions of float32.
    Without `strict`, elements that the reference gives NaN for are not decided.
    """

    rtol: float | None = None
    atol: float | None = None
    derived: bool = False
    default: bool = False
    strict: bool = True
    precision: Precision = Precision.PYTORCH


@dataclass(frozen=True)
class Judge(Request[Judged]):
    """Compare a candidate's outputs with the reference for the inputs that were drawn under a key.

    Where only some blocks ran, elements that hold nothing but the byte `unwritten` are not compared.
    """

    key: str
    outputs: tuple[TensorFile, ...]
    is_tuple: bool
    tolerances: Tolerances = Tolerances()
    unwritten: int | None = None


@dataclass(frozen=True)
class Forget(Request[tuple[str, ...]]):
    """Forget the problem, so that another may follow; the reply names what it left behind in its process."""
