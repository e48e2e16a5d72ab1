"""What the argument of `cutesmith generate` means: a problem file, a function or module in a file, or a sentence.

Everything is read off the AST; nothing is imported or executed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from cutesmith.errors import ContractError, UsageError
from cutesmith.problems import contract
from cutesmith.problems.input_shorthand import GRAMMAR, get_inputs_source

MOST_CHARACTERS = 20_000
_FUNCTION_IN_FILE = re.compile(r"(?P<path>.+\.py):(?P<name>[^:/\\]*)", re.DOTALL)
_NAME_WORDS = 6

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, kw_only=True)
class ProblemSource:
    """The text of a problem file, where it came from, and a name for the folder of its results.

    `kind` is "problem" or "kernelbench"; `path` the user's file; `changed` whether `source` is more than that file.
    """

    source: str
    origin: str  # "softmax.py" or "norms.py:rms_norm"
    name: str
    kind: str
    path: Path
    changed: bool = False


@dataclass(frozen=True, kw_only=True)
class KernelRequest:
    """A sentence that says what kernel is wanted, and a name for the folder of its results."""

    text: str
    name: str


class InputsNeededError(UsageError):
    """A function is there but nothing says on which inputs it is called; `source` is the problem without them."""

    def __init__(self, message: str, source: ProblemSource, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.source = source


def resolve(argument: str, inputs: Sequence[str] = ()) -> ProblemSource | KernelRequest:
    """What `argument` stands for; `inputs` are the texts of `--input` (`cutesmith.problems.input_shorthand`).

    Raises InputsNeededError for a function without inputs, UsageError for a path that leads nowhere, a name that the
    file does not define, or an empty or endless sentence, ContractError for a file that is not a problem.
    """
    text = argument.strip()
    found = _FUNCTION_IN_FILE.fullmatch(text)
    if found and "\n" not in text:
        return _from_definition(Path(found["path"]), found["name"].strip(), inputs)
    if _is_path(text):
        return _from_file(Path(text), inputs)
    if inputs:
        raise UsageError("--input belongs to a function of a file", hint="Say shapes and dtypes in the sentence.")
    return _from_sentence(text)


def _is_path(text: str) -> bool:
    if not text or len(text) > 4096 or re.search(r"[\n\0]", text):
        return False
    if text.endswith(".py") or (re.search(r"[/\\]", text) and not re.search(r"\s", text)):
        return True
    try:
        return Path(text).exists() or Path(f"{text}.py").is_file()
    except OSError:  # a sentence can be too long for a name
        return False


def _from_sentence(text: str) -> KernelRequest:
    if not any(character.isalpha() for character in text):
        raise UsageError(
            "the request is empty" if not text else f"{text!r:.80} does not say what to compute",
            hint='Say what to compute, on which shapes and dtypes: "fused add + RMSNorm, bf16, 16384x5120", '
            "or give a problem file.",
        )
    if len(text) > MOST_CHARACTERS:
        raise UsageError(
            f"the request has {len(text):,} characters; at most {MOST_CHARACTERS:,} are read",
            hint="Put the code into a file and give file.py:function.",
        )
    words = re.findall(r"[a-z0-9]+", text.lower())[:_NAME_WORDS]
    return KernelRequest(text=text, name="_".join(words)[:60] or "request")


def _from_file(path: Path, inputs: Sequence[str]) -> ProblemSource:
    source = _read(path)
    tree = contract.parse(source, path)
    names = {name for statement in contract.module_scope(tree.body) for name in contract.defined_names(statement)}
    _refuse_kernel(path, tree)
    whole = {"reference_fn", "get_inputs"} <= names or {"Model", "get_inputs", "get_init_inputs"} <= names
    if not inputs and whole:
        kind = "problem" if "reference_fn" in names else "kernelbench"
        return ProblemSource(source=source, origin=str(path), name=path.stem, kind=kind, path=path)
    for target in ("reference_fn", "Model"):
        if target in names:
            return replace(_from_definition(path, target, inputs), origin=str(path), name=path.stem)
    public = [name for name in _definitions(tree) if not name.startswith("_")]
    named = f"Name the function: {path}:{public[0]}\n" if public else ""
    raise ContractError(
        f"{path} defines no reference_fn and no Model at top level",
        hint=f"{named}Or write a problem file:\n{contract.PROBLEM_LINES}",
    )


def _read(path: Path) -> str:
    """The file's text; a path that leads nowhere is a mistake in the command line."""
    try:
        return contract.problem_source(path)
    except ContractError as error:
        raise UsageError(error.message, hint=error.hint or "Give a Python file.") from error


def _refuse_kernel(path: Path, tree: ast.Module) -> None:
    for statement in contract.module_scope(tree.body):
        if "kernel_fn" in contract.defined_names(statement):
            raise ContractError(
                f"{path.name} already defines kernel_fn (line {statement.lineno})",
                hint="Give a problem file: reference_fn and get_inputs. `cutesmith verify` checks a kernel.",
            )


def _definitions(tree: ast.Module) -> dict[str, Definition]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {s.name: s for s in contract.module_scope(tree.body) if isinstance(s, kinds)}


def _from_definition(path: Path, name: str, inputs: Sequence[str]) -> ProblemSource:
    source = _read(path)
    tree = contract.parse(source, path)
    _refuse_kernel(path, tree)
    definition = _definition(path, name, tree)
    origin, folder = f"{path}:{name}", f"{path.stem}_{name}".lower()
    if isinstance(definition, ast.ClassDef):
        appended, kind = _module_lines(path, definition, tree), "kernelbench"
        source = _without(source, ("reference_fn",), path)
    else:
        _require_positional(path, definition, len(inputs))
        appended, kind = ("" if name == "reference_fn" else f"reference_fn = {name}\n"), "problem"
    made = ProblemSource(source=source, origin=origin, name=folder, kind=kind, path=path, changed=bool(appended))
    return _with_inputs(_appended(made, appended), inputs)


def _definition(path: Path, name: str, tree: ast.Module) -> Definition:
    definitions = _definitions(tree)
    if name in definitions and not isinstance(definitions[name], ast.AsyncFunctionDef):
        return definitions[name]
    if name in definitions:
        raise UsageError(f"{path}:{name} is a coroutine", hint="A problem is a plain function of tensors.")
    close = get_close_matches(name, definitions, n=1)
    there = f"Functions and classes there: {', '.join(list(definitions)[:8]) or 'none'}."
    raise UsageError(
        f"{path} defines no function or class {name!r} at top level",
        hint=f"Did you mean {path}:{close[0]}?" if close else there,
    )


def _require_positional(path: Path, function: ast.FunctionDef | ast.AsyncFunctionDef, count: int) -> None:
    """The function can be called with positional arguments, `count` of them when not 0."""
    arguments = function.args
    named = [a.arg for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults) if default is None]
    if named:
        raise UsageError(
            f"{path}:{function.name} needs {named[0]} by name",
            hint="A problem is called with positional arguments: wrap it in a function that passes it on.",
        )
    most = len(arguments.posonlyargs) + len(arguments.args)
    fewest = most - len(arguments.defaults)
    if most == 0 and arguments.vararg is None:
        raise UsageError(f"{path}:{function.name} takes no arguments", hint="A problem computes something of tensors.")
    if count and not (fewest <= count and (arguments.vararg is not None or count <= most)):
        wanted = str(most) if fewest == most else f"{fewest} to {most}"
        raise UsageError(
            f"{path}:{function.name} takes {wanted} arguments and --input was given {count} times", hint=GRAMMAR
        )


def _module_lines(path: Path, definition: ast.ClassDef, tree: ast.Module) -> str:
    """What makes a KernelBench file of a module: the name `Model` and its init arguments."""
    methods = {s.name: s for s in definition.body if isinstance(s, ast.FunctionDef)}
    if "forward" not in methods:
        raise UsageError(
            f"{path}:{definition.name} is a class without forward", hint="Give a torch.nn.Module or a function."
        )
    lines = "" if definition.name == "Model" else f"Model = {definition.name}\n"
    if "get_init_inputs" in _definitions(tree):
        return lines
    needed: list[str] = []  # the arguments of `__init__` without a default
    if init := methods.get("__init__"):
        positional = [*init.args.posonlyargs, *init.args.args]
        required = positional[1 : len(positional) - len(init.args.defaults)]
        named = [a for a, default in zip(init.args.kwonlyargs, init.args.kw_defaults) if default is None]
        needed = [argument.arg for argument in (*required, *named)]
    if needed:
        raise UsageError(
            f"{path}:{definition.name} cannot be built without {', '.join(needed)}",
            hint=f"Add to {path.name}: def get_init_inputs(): return [...]   # {', '.join(needed)}",
        )
    return f"{lines}\n\ndef get_init_inputs():\n    return []\n"


def _with_inputs(made: ProblemSource, inputs: Sequence[str]) -> ProblemSource:
    tree = contract.parse(made.source, made.path)
    has_inputs = any("get_inputs" in contract.defined_names(s) for s in contract.module_scope(tree.body))
    if inputs:
        own = _without(made.source, ("get_inputs", "get_input_sets"), made.path)
        return _appended(replace(made, source=own), get_inputs_source(inputs))
    if has_inputs:
        return made
    raise InputsNeededError(
        f"{made.origin}: nothing says on which inputs it is called",
        made,
        hint=f"Add to {made.path.name}:\n{contract.PROBLEM_LINES.splitlines()[-1]}\n"
        f"or {GRAMMAR[0].lower()}{GRAMMAR[1:]}",
    )


def _appended(made: ProblemSource, lines: str) -> ProblemSource:
    if not lines:
        return made
    return replace(made, source=f"{made.source.rstrip()}\n\n\n{lines.strip()}\n", changed=True)


def _without(source: str, names: Collection[str], path: Path) -> str:
    """The text with these top-level functions blanked, every other line in its place."""
    tree = contract.parse(source, path)
    lines = source.split("\n")
    for statement in tree.body:
        if not set(contract.defined_names(statement)) & set(names):
            continue
        if not isinstance(statement, ast.FunctionDef):
            raise UsageError(
                f"{path}:{statement.lineno}: {' and '.join(names)} cannot be replaced: it is not a plain function",
                hint="Move the function or module into a file of its own.",
            )
        first = min([statement.lineno, *(decorator.lineno for decorator in statement.decorator_list)])
        last = statement.end_lineno or statement.lineno
        lines[first - 1 : last] = [""] * (last - first + 1)
    return "\n".join(lines)
