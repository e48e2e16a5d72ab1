"""Whether a kernel declined its inputs, as it may with shapes that no one promised, or fell over them."""

from __future__ import annotations

from cutesmith.emulator.errors import EmulationError, LaunchRefused

MISTAKES = (
    NameError,
    AttributeError,
    TypeError,
    LookupError,
    ArithmeticError,
    ImportError,
    SyntaxError,
    RecursionError,
    MemoryError,
    OSError,
    EOFError,
    BufferError,
    StopIteration,
    SystemError,
    UnicodeError,
    EmulationError,  # found while the kernel ran
)


def declines(error: BaseException | None) -> bool:
    """Whether raising this is a refusal, which a kernel chose or the DSL's checks of its arguments or launch made.

    Whatever says "these inputs are not for me" counts: ValueError, NotImplementedError, an assertion, the kernel's own
    exceptions, the RuntimeErrors of torch. What Python raises by itself where code is wrong does not, nor does it once
    the DSL has wrapped it, nor an error of CUDA, which is of a launch that went ahead.
    """
    if isinstance(error, LaunchRefused):
        return True
    if not isinstance(error, Exception) or isinstance(error, MISTAKES) or "CUDA" in str(error):
        return False
    inner = error.__cause__ or error.__context__
    return not (_is_of_the_dsl(error) and inner is not None and not declines(inner))


def _is_of_the_dsl(error: BaseException) -> bool:
    return any(kind.__module__.split(".")[0] == "cutlass" for kind in type(error).__mro__)
