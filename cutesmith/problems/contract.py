"""The contract of a kernel or problem file: inspected without import, loaded as a real module, its inputs checked.

A kernel file defines `kernel_fn`, `reference_fn` and `get_inputs` (optional: `get_input_sets`, `TOLERANCE`,
`ALGORITHMIC_FLOPS`, `ALGORITHMIC_BYTES`); a problem file is one without `kernel_fn`; a KernelBench file (`Model`,
`get_inputs`, `get_init_inputs`) is a problem too, its parameters and buffers being further inputs
(`kernelbench.py`). Inspecting trusts nothing in the file; loading runs it and belongs into a worker process.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import math
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cutesmith.errors import ContractError
from cutesmith.syntax import parse_python
from cutesmith.unicode import plain_text

MAX_BYTES = 5_000_000
PROBLEM = "problem.py"
PROBLEM_NAMES = (
    "reference_fn",
    "get_inputs",
    "get_input_sets",
    "TOLERANCE",
    "Model",
    "get_init_inputs",
    "ALGORITHMIC_FLOPS",
    "ALGORITHMIC_BYTES",
)
"""What a worker that runs the candidate strips from the file: none of it is the kernel's business."""

DRAWING_OPTIONS = ("DERIVED_SHAPES", "DOMAIN", "EMULATED_SIZES")
"""Names by which a problem says what may be drawn beside its own inputs, and at which sizes."""

INPUTS_MAY_BE = (
    "Inputs are torch tensors, Python numbers (bool, int, float), options (text, None, a torch.dtype), and lists and "
    "tuples of these."
)

KERNEL_LINES = """\
def kernel_fn(x): ...      # launches the compiled CuTe DSL kernel, returns a tensor or a tuple of tensors
def reference_fn(x): ...   # the same function in PyTorch
def get_inputs(): return [torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16)]"""

PROBLEM_LINES = """\
import torch
def reference_fn(x): return torch.softmax(x, dim=-1)   # the function, in PyTorch
def get_inputs(): return [torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16)]"""

KERNELBENCH_LINES = """\
class Model(torch.nn.Module): ...      # forward(self, x) is the function
def get_inputs(): return [torch.randn(1024, 1024)]
def get_init_inputs(): return []       # Model(*get_init_inputs())"""


@dataclass(frozen=True, kw_only=True)
class FileContract:
    """What a file defines at module scope, read off its AST; nothing was run.

    `kind` is "kernel", "problem" or "kernelbench"; `names` maps top-level names to the line of their last definition;
    `parameters` maps functions to their (fewest, most) positional arguments, `None` for `*args`.
    """

    path: Path
    kind: str
    source: str
    names: Mapping[str, int]
    parameters: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)

    @property
    def has_kernel(self) -> bool:
        """Whether the file defines `kernel_fn`."""
        return "kernel_fn" in self.names

    @property
    def wraps_model(self) -> bool:
        """Whether the reference is a KernelBench `Model`, whose parameters become inputs."""
        return "reference_fn" not in self.names and {"Model", "get_inputs", "get_init_inputs"} <= self.names.keys()

    @property
    def has_problem(self) -> bool:
        """Whether the file defines what to compute and on which inputs."""
        return self.wraps_model or {"reference_fn", "get_inputs"} <= self.names.keys()


def inspect(path: str | Path, *, with_problem: bool = False) -> FileContract:
    """Read what a kernel or problem file defines, without running it.

    `with_problem` says that a separate problem file is given, so that `kernel_fn` alone is enough.
    Raises ContractError: no readable UTF-8 file of at most 5 MB, a syntax error (with its line), or missing names.
    """
    path = Path(path)
    source = problem_source(path)
    tree = parse(source, path)
    names = {name: statement.lineno for statement in module_scope(tree.body) for name in defined_names(statement)}
    kind = "kernelbench" if "Model" in names and "reference_fn" not in names else "problem"
    if "kernel_fn" in names:
        kind = "kernel"
    contract = FileContract(path=path, kind=kind, source=source, names=names, parameters=dict(_parameters(tree.body)))
    needed, lines = ["reference_fn", "get_inputs"], KERNEL_LINES if kind == "kernel" else PROBLEM_LINES
    if kind == "kernelbench":
        needed, lines = ["get_inputs", "get_init_inputs"], KERNELBENCH_LINES
    elif kind == "kernel" and (with_problem or contract.wraps_model):
        needed = []
    if missing := [name for name in needed if name not in names]:
        wrong = f"{path} defines no {' and no '.join(missing)} at top level"
        beside = problem_beside(path) if kind == "kernel" else None
        used = f"{PROBLEM} lies beside it: --problem {beside}\n" if beside else ""
        if kind == "kernel" and not beside:
            used = "Name the file that defines what the kernel computes, --problem FILE, or write it here.\n"
        raise ContractError(wrong, hint=f"{used}The lines to write:\n{lines}")
    _require_same_arity(contract)
    return contract


def problem_beside(path: Path) -> Path | None:
    """The `problem.py` in the folder of a kernel file, which is judged by it only where `--problem` names it."""
    beside = path.with_name(PROBLEM)
    return beside if path.name != PROBLEM and beside.is_file() else None


def inspect_kernel(path: str | Path, *, with_problem: bool = False) -> FileContract:
    """As `inspect`, for a stage that needs `kernel_fn`; a problem file alone is a ContractError too."""
    contract = inspect(path, with_problem=with_problem)
    if not contract.has_kernel:
        hint = f"Draft one: cutesmith generate {contract.path}\nor write it:\n{KERNEL_LINES}"
        raise ContractError(f"{contract.path} is a problem file: it has no kernel_fn", hint=hint)
    return contract


def hold(path: str | Path, source: str | None = None) -> None:
    """Keep the text of a file (read now, or `source`) for later calls: soon this process may not read the file itself.

    Raises as `problem_source` does.
    """
    text = problem_source(path) if source is None else source
    _held[str(path)] = text


_held: dict[str, str] = {}


def problem_source(path: str | Path) -> str:
    """The text of a kernel or problem file; ContractError when it is missing, no file, too large, or not UTF-8."""
    if (held := _held.get(str(path))) is not None:
        return held
    path = Path(path)
    _require_regular_file(path)
    data = path.read_bytes()
    if b"\0" in data:
        raise ContractError(f"{path} is a binary file, not Python source", hint="Give the .py file itself.")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ContractError(
            f"{path}:{line}: not UTF-8: byte 0x{data[error.start]:02x}", hint="Save the file as UTF-8."
        ) from error


def problem_of(path: str | Path, problem: str | Path | None) -> Path:
    """The file that says what a kernel computes: `problem`, or `path` where none is given or both are the same file.

    The author of a kernel wrote what its file says too: it is untrusted, by whatever name it is given.
    """
    path = Path(path)
    with contextlib.suppress(OSError):  # one that is missing is said to be where it is read
        if problem is None or os.path.samefile(path, problem):
            return path
    return Path(problem) if problem is not None else path


def content_hash(path: str | Path) -> str:
    """The SHA-256 of the file's bytes, in hexadecimal: names checkpoints and ties a verdict to what it judged."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def parse(source: str, path: str | Path) -> ast.Module:
    """The file's AST; ContractError with line, message and the source line when it is not Python."""
    try:
        return parse_python(source, path)
    except SyntaxError as error:
        where = f"{path}:{error.lineno}" if error.lineno else str(path)
        raise ContractError(f"{where}: syntax error: {error.msg}", hint=(error.text or "").rstrip()[:200]) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ContractError(f"{path}: cannot be parsed: {type(error).__name__}: {error}") from error


def check_inputs(inputs: Any, *, where: str = "get_inputs()", device: str = "cuda") -> list[Any]:
    """The values of the inputs (`problems.arguments`), once each input is one that a function may have.

    That is a tensor on `device`, a Python bool, int or float, an option, or a list or tuple that holds tensors.
    Raises ContractError that names the first input that is something else, and what to write.
    """
    from cutesmith.problems.arguments import spread

    for index, value in enumerate(listed(inputs, where=where)):
        _check_input(value, f"{where}: input {index}", where, device)
    return spread(inputs)


def _check_input(value: Any, name: str, where: str, device: str) -> None:
    import torch

    from cutesmith.problems.arguments import SEQUENCES, is_option

    if isinstance(value, torch.Tensor):
        if (actual := value.device.type) != device:
            raise ContractError(
                f"{name} is on {actual}: {where} must return {device.upper()} tensors",
                hint=f'Write device="{device}" where the tensor is made.',
            )
    elif type(value) in SEQUENCES:
        for index, item in enumerate(value):
            _check_input(item, f"{name}[{index}]", where, device)
    elif not (isinstance(value, (bool, int, float)) or is_option(value)):
        raise ContractError(f"{name} is {_a(type(value).__name__)}", hint=INPUTS_MAY_BE)


def listed(inputs: Any, *, where: str = "get_inputs()") -> list[Any]:
    """The inputs as a list. Raises ContractError where they are something else than a list or tuple, or empty."""
    if not isinstance(inputs, (list, tuple)):
        raise ContractError(
            f"{where} returned {_a(type(inputs).__name__)}, not a list of inputs", hint="Write: return [x, y]"
        )
    if not inputs:
        raise ContractError(f"{where} returned no inputs", hint=f"At least one tensor is needed:\n{PROBLEM_LINES}")
    return list(inputs)


def check_arity(function: Callable[..., Any], name: str, inputs: Sequence[Any]) -> None:
    """ContractError when `function` cannot be called with these values as positional arguments."""
    from inspect import signature

    from cutesmith.problems.arguments import gathered

    try:
        accepted = signature(function)
    except (TypeError, ValueError):  # a builtin without a signature: the call itself will tell
        return
    try:
        accepted.bind(*(arguments := gathered(inputs)))
    except TypeError as error:
        raise ContractError(
            f"{name}{accepted} does not take the {len(arguments)} inputs that get_inputs() returns: {error}",
            hint=f"{name} is called as {name}(*get_inputs()): one positional argument an input.",
        ) from error


def check_tolerance(value: Any, path: str | Path) -> dict[str, float]:
    """TOLERANCE as `{"rtol": float, "atol": float}` (either may be missing, `{}` for None); ContractError otherwise."""
    if value is None:
        return {}
    write = 'Write: TOLERANCE = {"rtol": 1e-2, "atol": 1e-3}  # with the reason'
    if not isinstance(value, dict) or not value or not value.keys() <= {"rtol", "atol"}:
        raise ContractError(f"{path}: TOLERANCE must be a dict with rtol, atol or both, not {value!r:.80}", hint=write)
    for key, number in value.items():
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise ContractError(f"{path}: TOLERANCE[{key!r}] is {number!r:.80}, not a number", hint=write)
        if not math.isfinite(number) or number < 0:
            wrong = f"{path}: TOLERANCE[{key!r}] is {number!r}: it must be finite and not negative"
            raise ContractError(wrong, hint=write)
    return {key: float(number) for key, number in value.items()}


def check_work(value: Any, name: str, inputs: Sequence[Any]) -> int | None:
    """ALGORITHMIC_FLOPS or ALGORITHMIC_BYTES as a number for these values of inputs; None where the file declares none.

    It is an int or a function of the inputs. Raises ContractError for anything else, also what the function raises.
    """
    if value is None:
        return None
    if callable(value):
        from cutesmith.problems.arguments import gathered

        try:
            value = value(*gathered(inputs))
        except Exception as error:
            raise ContractError(f"{name} raised {type(error).__name__}: {str(error)[:500]}") from error
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        hint = f"Write: {name} = 2 * 4096**3, or a function of the inputs: def {name}(x, w): return …"
        raise ContractError(f"{name} is {value!r:.80}, not a number from 0 up", hint=hint)
    return int(value)


def _require_regular_file(path: Path) -> None:
    try:
        status = path.stat()
    except FileNotFoundError as error:
        raise ContractError(f"{path}: no such file", hint=_neighbours(path)) from error
    except (OSError, ValueError) as error:  # no permission, a name too long, a NUL in it
        raise ContractError(f"{str(path)[:200]!r}: cannot be read: {error}") from error
    if plain_text(str(path)) != str(path) or "\n" in str(path):  # MLIR takes UTF-8 alone; and it is printed
        raise ContractError(f"{str(path)!r}: its name is not plain text", hint="Rename the file or its folder.")
    if stat.S_ISDIR(status.st_mode):
        raise ContractError(f"{path} is a folder, not a kernel or problem file", hint=_neighbours(path / "x"))
    if not stat.S_ISREG(status.st_mode):
        raise ContractError(f"{path} is not a regular file")
    if status.st_size > MAX_BYTES:
        raise ContractError(f"{path} has {status.st_size:,} bytes; at most {MAX_BYTES:,} are read")


def _neighbours(path: Path) -> str:
    from difflib import get_close_matches

    try:
        found = sorted(p.name for p in path.parent.glob("*.py"))
    except OSError:
        return ""
    close = get_close_matches(path.name, found, n=1)
    if close:
        return f"Did you mean {path.parent / close[0]}?"
    return f"Python files there: {', '.join(found[:8])}" if found else ""


def _require_same_arity(contract: FileContract) -> None:
    kernel, reference = contract.parameters.get("kernel_fn"), contract.parameters.get("reference_fn")
    if kernel is None or reference is None:
        return
    overlap = min(_most(kernel), _most(reference)) >= max(kernel[0], reference[0])
    if not overlap:
        lines = contract.names
        raise ContractError(
            f"{contract.path}: kernel_fn (line {lines['kernel_fn']}) takes {_count(kernel)} and "
            f"reference_fn (line {lines['reference_fn']}) takes {_count(reference)}",
            hint="Both are called with the inputs that get_inputs() returns: give them the same positional arguments.",
        )


def _most(arity: tuple[int, int | None]) -> float:
    return math.inf if arity[1] is None else arity[1]


def _count(arity: tuple[int, int | None]) -> str:
    fewest, most = arity
    if most is None:
        return f"at least {fewest} positional arguments"
    number = str(most) if fewest == most else f"{fewest} to {most}"
    return f"{number} positional argument{'' if most == 1 else 's'}"


def _a(noun: str) -> str:
    return "None" if noun == "NoneType" else f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def module_scope(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Every statement that runs in the module's own scope: also inside top-level if, try, with and loops."""
    for statement in body:
        yield statement
        for block in _blocks(statement):
            yield from module_scope(block)


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The nested statement lists that share the scope of a compound statement (none for functions and classes)."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return
    for name in ("body", "orelse", "finalbody"):
        block = getattr(statement, name, None)
        if isinstance(block, list):
            yield block
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


def defined_names(statement: ast.stmt) -> Iterator[str]:
    """The names that one statement binds in its scope (without those of nested blocks)."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
    elif isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and statement.value is not None:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        nodes = (node for target in targets for node in ast.walk(target))
        yield from (node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))


def _parameters(body: Iterable[ast.stmt]) -> Iterator[tuple[str, tuple[int, int | None]]]:
    for statement in module_scope(body):
        if isinstance(statement, ast.FunctionDef) and not statement.decorator_list:
            arguments = statement.args
            most = len(arguments.posonlyargs) + len(arguments.args)
            yield statement.name, (most - len(arguments.defaults), None if arguments.vararg else most)
        else:  # anything else that binds the name hides the signature
            yield from ((name, (0, None)) for name in defined_names(statement))
