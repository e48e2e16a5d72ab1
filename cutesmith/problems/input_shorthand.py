"""Inputs in short: `bf16[16384,5120]`, `i64[4096]<50257`, `1e-5`, `"tanh"`, `[f32[8], f32[4]]`.

And the `get_inputs` that draws them.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Sequence

from cutesmith.errors import UsageError

FLOATS = {
    "float64": "f64 fp64 double",
    "float32": "f32 fp32 float",
    "float16": "f16 fp16 half",
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8 fp8 e4m3 f8e4m3 fp8_e4m3",
    "float8_e5m2": "e5m2 f8e5m2 fp8_e5m2",
}
INTEGERS = {"int64": "i64 long", "int32": "i32 int", "int16": "i16 short", "int8": "i8", "uint8": "u8"}
BOOLEANS = {"bool": "b8 b1"}
MOST_DIMENSIONS = 8
SMALL = 8  # integers without a bound are below it, so that they may stand for a class or a position

_DTYPES = {
    alias: name
    for names in (FLOATS, INTEGERS, BOOLEANS)
    for name, others in names.items()
    for alias in (name, *others.split())
}
_TENSOR = re.compile(r"(?P<dtype>[\w.]+)\s*\[(?P<sizes>[^\[\]]*)\]\s*(?:<\s*(?P<bound>\d+))?")
GRAMMAR = (
    "Write --input once for each argument: a tensor as 'bf16[16384,5120]', indices below a bound as "
    "'i64[16384]<5120', a number as 1e-5 or True, an option as '\"tanh\"', None or torch.float16, a list as "
    "'[f32[8,4], f32[8,2]]' or '(1, 1)'."
)


def input_expression(text: str) -> str:
    """The Python expression that draws one input on CUDA; raises UsageError that shows the grammar.

    Floating-point tensors are standard normal, booleans even, integers uniform from 0 below their bound.
    """
    found = _TENSOR.fullmatch(text.strip())
    if found is None:
        return _sequence(text) or _scalar(text)
    dtype = _DTYPES.get(found["dtype"].lower().removeprefix("torch."))
    if dtype is None:
        raise UsageError(
            f"--input {text!r}: {found['dtype']!r} is not a known dtype",
            hint=f"Known: {', '.join((*FLOATS, *INTEGERS, *BOOLEANS))}, and bf16, f16, f32, i64 and the like.",
        )
    if found["bound"] is not None and (dtype not in INTEGERS or int(found["bound"]) < 1):
        raise UsageError(f"--input {text!r}: only integers have a bound, of at least 1", hint=GRAMMAR)
    return _tensor(dtype, _sizes(found["sizes"], text), int(found["bound"] or 0))


def get_inputs_source(inputs: Sequence[str]) -> str:
    """A definition of `get_inputs` that returns these inputs."""
    lines = "".join(f"        {input_expression(text)},\n" for text in inputs)
    return f"import torch  # noqa: E402\n\n\ndef get_inputs():\n    return [\n{lines}    ]\n"


def _sizes(text: str, whole: str) -> tuple[int, ...]:
    parts = [part.strip() for part in re.split(r"[,x×*]", text)] if text.strip() else []
    if parts and not parts[-1]:  # a trailing comma, as Python writes a tuple of one
        parts.pop()
    if len(parts) > MOST_DIMENSIONS or not all(re.fullmatch(r"\d[\d_]{0,15}", part) for part in parts):
        raise UsageError(f"--input {whole!r}: [{text}] does not name sizes", hint=GRAMMAR)
    return tuple(int(part.replace("_", "")) for part in parts)


def _tensor(dtype: str, sizes: tuple[int, ...], bound: int) -> str:
    shape = f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"
    if dtype in BOOLEANS:
        return f'torch.rand({shape}, device="cuda") < 0.5'
    if dtype in INTEGERS:
        largest = {"int8": 1 << 7, "uint8": 1 << 8, "int16": 1 << 15, "int32": 1 << 31}.get(dtype, 1 << 62)
        limit = min(bound or SMALL, largest)
        return f'torch.randint(0, {limit}, {shape}, device="cuda", dtype=torch.{dtype})'
    if dtype.startswith("float8"):
        return f'torch.randn({shape}, device="cuda").to(torch.{dtype})'
    return f'torch.randn({shape}, device="cuda", dtype=torch.{dtype})'


def _sequence(text: str) -> str:
    """The expression of a list or tuple, each of whose items is an input; empty for anything else."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ""
    if not isinstance(node, (ast.List, ast.Tuple)):
        return ""
    items = [input_expression(ast.get_source_segment(text.strip(), item) or "") for item in node.elts]
    return f"[{', '.join(items)}]" if isinstance(node, ast.List) else f"({''.join(f'{item}, ' for item in items)})"


def _scalar(text: str) -> str:
    if text.strip().removeprefix("torch.") in (*FLOATS, *INTEGERS, *BOOLEANS) and text.strip().startswith("torch."):
        return text.strip()
    literal = {"true": "True", "false": "False"}.get(text.strip().lower(), text.strip())
    try:
        value = ast.literal_eval(literal)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = b""
    if not (isinstance(value, (bool, int, float)) and math.isfinite(value) or value is None or isinstance(value, str)):
        raise UsageError(f"--input {text!r:.80} is neither a tensor nor a number nor an option", hint=GRAMMAR)
    return repr(value)
