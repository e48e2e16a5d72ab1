"""What a check of the judge found against a kernel, as data; sentences are made of it at the very end."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Rule(str, enum.Enum):
    """A row of the table of exploits (`judge.exploits`); equal to its code, such as "O1"."""

    O1 = "O1"
    O2 = "O2"
    O3 = "O3"
    O4 = "O4"
    O5 = "O5"
    O6 = "O6"
    O7 = "O7"
    O8 = "O8"
    O9 = "O9"
    O10 = "O10"
    O11 = "O11"
    O12 = "O12"
    O13 = "O13"
    W1 = "W1"
    W2 = "W2"
    W3 = "W3"
    W4 = "W4"
    R1 = "R1"
    R2 = "R2"
    R3 = "R3"
    R4 = "R4"
    R5 = "R5"
    T1 = "T1"
    T2 = "T2"
    T3 = "T3"
    T4 = "T4"
    T5 = "T5"
    T6 = "T6"
    T7 = "T7"
    T8 = "T8"
    H1 = "H1"
    H2 = "H2"
    H3 = "H3"
    H4 = "H4"
    H5 = "H5"
    H6 = "H6"
    H7 = "H7"
    V1 = "V1"
    V2 = "V2"
    V3 = "V3"
    V4 = "V4"
    V5 = "V5"
    S1 = "S1"
    S2 = "S2"
    S3 = "S3"
    S4 = "S4"
    S5 = "S5"

    __str__ = str.__str__


class Mechanism(enum.Enum):
    """The check that found something; the value is what the self-test's tables call it."""

    STATIC_CHECK = "static check"
    STUBBED_LAUNCHES = "launches stubbed out"
    NO_LAUNCH = "no launch at all"
    DISPATCH_MODE = "dispatch mode"
    DEVICE_MEMORY = "device memory kept from the host"
    IDENTITIES = "identities"
    THREADS = "threads counted"
    EXACT_TYPES = "exact types"
    KEPT_OUTPUTS = "outputs kept"
    ADDRESSES = "addresses"
    INPUTS_COMPARED = "inputs compared"
    GUARD_ZONES = "guard zones"
    STREAM_ORDER = "stream order"
    REPLAYED = "replayed"
    EMULATED_SANITIZER = "sanitizer of the emulated GPU"
    COMPUTE_SANITIZER = "compute-sanitizer"
    DEVICE_TIME = "shares of device time"
    FULL_SIZE_LAUNCHES = "launches at full size"
    NOTHING_DECIDED = "no element that could be judged"
    INDEX_WIDTH = "width of indices"
    NARROW_INSTRUCTIONS = "narrow instructions"
    TIMED_OUTPUTS = "timed outputs"
    PERSISTING_L2 = "persisting L2"
    WARM_UP = "warm-up measured again"
    PHYSICAL_FLOOR = "physical floor"
    PARENTS_CLOCK = "parent's clock"
    PRIVATE_PIPE = "private pipe"
    OUTPUT_FILES = "files of outputs"
    POISON = "poison"
    STRUCTURE = "structure"
    DERIVED_INPUTS = "derived inputs"
    UNREAD_INPUT = "each input changed alone"
    FLOAT64_REFERENCE = "float64 reference"
    PROBLEM_AUDIT = "audit of the problem"
    TIME_LIMIT = "time limit"
    MEMORY_LIMIT = "memory limit"
    GPU_MEMORY = "GPU memory"
    PROCESS_LIMITS = "limits of processes and files"
    FILE_ACCESS = "file limits"
    SYSTEM_CALLS = "system call filter"
    VANISHED_WORKER = "vanished worker"
    CONTRACT = "contract"
    EXCEPTION = "an exception"
    REFUSAL = "a refusal of the kernel's own"


class FaultKind(str, enum.Enum):
    """What a sanitizer can find wrong with a launch; the values are those of reports."""

    OUT_OF_BOUNDS = "out_of_bounds"
    MISALIGNED = "misaligned"
    UNINITIALISED_READ = "uninitialised_read"
    RACE = "race"
    DIVERGENT_BARRIER = "divergent_barrier"
    MISMATCHED_BARRIER = "mismatched_barrier"
    MISSING_WAIT = "missing_wait"
    MISSING_FENCE = "missing_fence"
    DEPENDS_ON_ORDER = "depends_on_order"
    DEADLOCK = "deadlock"
    ENDLESS_LOOP = "endless_loop"
    INVALID_OPERAND = "invalid_operand"
    TENSOR_MEMORY = "tensor_memory"
    TRAP = "trap"
    ASSERTION = "assertion"

    @property
    def words(self) -> str:
        """For people: "missing wait"."""
        return self.value.replace("_", " ")


@dataclass(frozen=True)
class Violation:
    """One thing that a check holds against a kernel.

    `rule`: the row of the table of exploits that it looks like, None for a mistake. `reject`: it is cheating, not a
    wrong result. `fault`: what a sanitizer found. `sign`: what the same fault has in every case, where that is known:
    its kind and its lines.
    """

    rule: Rule | None
    mechanism: Mechanism
    text: str
    reject: bool = True
    fault: FaultKind | None = None
    sign: str = ""


class CaseOutcome(enum.Enum):
    """What became of one case."""

    PASSED = "passed"
    DECLINED = "declined"  # the kernel refused inputs that it need not take
    NOT_RUN = "not run"  # the judge itself could not try it
    NOT_DECIDED = "not decided"  # it was executed, and there was no element whose value could be judged
    RECORDED = "recorded"  # launches were written down and checked, and not executed
    NOT_EXECUTED = "not executed"  # code that a call at full size takes: nothing is held against it, or known of it
    WRONG_RESULT = "wrong result"
    REJECTED = "rejected"
    FAULT = "fault"  # a sanitizer found that the kernel accesses what it must not
    NOT_LAUNCHED = "not launched"  # a GPU would refuse a launch at full size
    RAISED = "raised"  # at full size
    HANGS = "hangs"  # on a GPU that does not hold the whole grid at once

    @property
    def passed(self) -> bool:
        """Whether nothing is held against the kernel."""
        return self in _HARMLESS


_HARMLESS = (
    CaseOutcome.PASSED,
    CaseOutcome.DECLINED,
    CaseOutcome.NOT_RUN,
    CaseOutcome.NOT_DECIDED,
    CaseOutcome.RECORDED,
    CaseOutcome.NOT_EXECUTED,
)


class Excuse(str, enum.Enum):
    """What lets an error pass that is beyond the stated tolerance; the values are those of reports."""

    LAST_PLACE = "one unit in the last place"
    SUBNORMAL = "subnormal numbers may be flushed to zero"
    PYTORCH = "PyTorch's own error on these inputs"
    NEARBY = "PyTorch's own error on inputs near these"
    NO_DIGIT = "no digit of PyTorch's own result is right"
    INPUTS = "roundings of the inputs move the result"
    STEPS = "roundings of intermediate results move the element"
    FACTORS = "rounded factors of convolutions or products move the element"
    INTEGERS = "roundings decide these integers"

    __str__ = str.__str__


def outcome_of(violation: Violation) -> CaseOutcome:
    """The outcome of a case that ends with this violation."""
    if violation.reject:
        return CaseOutcome.REJECTED
    return CaseOutcome.FAULT if violation.fault else CaseOutcome.WRONG_RESULT
