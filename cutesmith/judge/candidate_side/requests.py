"""What the candidate's process is asked, and its replies, which are its word alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from cutesmith.compiling.narrowing import Compiled
from cutesmith.judge.transfer.requests import Scalar, TensorFile, TensorLayout, Value
from cutesmith.sandbox.messages import Request
from cutesmith.verdicts import ExitCode, MbarrierRing, Violation


@dataclass(frozen=True)
class Loaded:
    """Which layers of the confinement held, and what the file changed of its process."""

    confinement: dict[str, bool]
    changes: tuple[Violation, ...]


@dataclass(frozen=True)
class Load(Request[Loaded]):
    """Confine the process, then run the file without its reference."""

    path: str


REACHED = "reached"
"""The file beside the folders of a case's results that has the number of the call which was begun last."""


@dataclass(frozen=True)
class Step:
    """One call of `kernel_fn`.

    `reuse`: new contents behind the pointers of the step before. `poison`: the byte that memory is filled with before.
    `outputs`: the folder for the results.
    """

    inputs: tuple[Value, ...]
    reuse: bool
    poison: int
    outputs: str


@dataclass(frozen=True)
class CallReport:
    """What one call of `kernel_fn` did: torch operations by name that it computed and copied with, and violations."""

    is_tuple: bool
    computed: dict[str, int]
    copied: dict[str, int]
    violations: tuple[Violation, ...]


@dataclass(frozen=True)
class StepReport(CallReport):
    """`unwritten`: elements that held poison after every step; `early`: what this one wrote was overwritten."""

    outputs: tuple[TensorFile, ...]
    unwritten: int = 0
    early: bool = False


@dataclass(frozen=True)
class Ran:
    """Reports of the steps, and what the candidate changed of its process.

    `declined` or `stopped` say why there are none. On the emulated GPU, lane-instructions of a step, the blocks of
    each of its launches and of their largest `cluster`, the ring of mbarriers that its kernels go round
    (emulator.machine.rings), whether its blocks share the work of the grid as the GPU has room for them (`persistent`),
    the names of its kernels, and the `code` that they and host code took.
    """

    steps: tuple[StepReport, ...] = ()
    changes: tuple[Violation, ...] = ()
    declined: str = ""
    stopped: str = ""
    instructions: int = 0
    blocks: tuple[int, ...] = ()
    cluster: int = 1
    ring: MbarrierRing | None = None
    persistent: bool = False
    kernels: tuple[str, ...] = ()
    code: ExecutedCode | None = None


@dataclass(frozen=True)
class Run(Request[Ran]):
    """Call `kernel_fn` once for each step.

    `stub`: once more while launches do nothing. `may_decline`: a refusal is a reply, with `may_raise` any exception is.
    `limited`: so is a call that takes too many steps. `fresh`: load the file again, as one copy need not take several
    shapes. On the emulated GPU, `some_blocks`: execute some of a launch's blocks, if it is the only one; of blocks that
    wait for each other it holds `resident_blocks` at once, 0 for as many as a GPU; launches run in
    so many `orders` at least; it says that it has so many `multiprocessors`, 0 for those of the usual product.
    """

    steps: tuple[Step, ...]
    stub: bool = False
    may_decline: bool = False
    may_raise: bool = False
    limited: bool = False
    fresh: bool = False
    some_blocks: bool = False
    resident_blocks: int = 0
    orders: int = 1
    multiprocessors: int = 0


@dataclass(frozen=True)
class Recorded(CallReport):
    """A call without values: layouts of the outputs, names of the launched kernels."""

    outputs: tuple[TensorLayout, ...]
    launches: tuple[str, ...]
    changes: tuple[Violation, ...]


@dataclass(frozen=True)
class Record(Request[Recorded]):
    """Run `kernel_fn` on inputs without values."""

    inputs: tuple[Scalar | TensorLayout, ...]


@dataclass(frozen=True)
class FullSizeCall:
    """What a call did: blocks and kernel of each launch, torch operations by name, and why none could be judged.

    `wraps` says what is wrong with an index, `remark` what was tried to find out. `crowded`: blocks that wait for each
    other and are more than the GPU holds. `error` and the exit code say why a GPU would not do the call.
    """

    blocks: tuple[int, ...] = ()
    kernels: tuple[str, ...] = ()
    computed: dict[str, int] = field(default_factory=dict)
    untried: str = ""
    wraps: str = ""
    remark: str = ""
    crowded: str = ""
    error: str = ""
    exit_code: ExitCode = ExitCode.PASSED
    changes: tuple[Violation, ...] = ()


@dataclass(frozen=True)
class FullSize(Request[FullSizeCall]):
    """Record the launches of a call on inputs of these layouts; `fresh` as in `Run`."""

    inputs: tuple[Scalar | TensorFile | TensorLayout, ...]
    fresh: bool


@dataclass(frozen=True)
class Launched:
    """A kernel, by its opcodes in their order, and a launch of it; `several` in a row.

    Two compilations that differ in nothing but their constants are the same code; `constants` has those of this one.
    """

    name: str
    opcodes: str
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    several: bool = False
    constants: tuple[tuple[str, str], ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Decision:
    """A condition of a kernel, known by its name and opcodes, and what it came to.

    `number`: that of its instruction in the kernel without calls. `line`: such as "kernel.py:31"; `text`: what the file
    has there. `compared`: two numbers whose comparison came out so.
    """

    name: str
    opcodes: str
    number: int
    holds: bool
    line: str = field(default="", compare=False)
    text: str = field(default="", compare=False)
    compared: tuple[float, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class ExecutedCode:
    """What was executed on the emulated GPU: branches of host code by line and column, launches, conditions."""

    branches: tuple[tuple[int, int], ...]
    launches: tuple[Launched, ...]
    decisions: tuple[Decision, ...] = ()


@dataclass(frozen=True)
class Executed(Request[ExecutedCode]):
    """Say what of the file was executed so far; with `conditions`, also what the conditions of its kernels came to."""

    conditions: bool = False


@dataclass(frozen=True)
class NotExecuted(Request[tuple[str, ...]]):
    """Tell what code the recorded call at full size takes that no executed call took, a clause each.

    `beside`: what another process with the same file executed.
    """

    beside: ExecutedCode | None = None


@dataclass(frozen=True)
class Opcodes(Request[Compiled]):
    """Count the opcodes of all kernels that were executed so far, on the emulated GPU."""


@dataclass(frozen=True)
class Profile(Request[tuple[tuple[str, float], ...]]):
    """Name and microseconds of what runs on the device in calls of a kernel, by PyTorch's profiler.

    `confined`: its problem is, though it has a file of its own.
    """

    path: str
    problem: str
    confined: bool
