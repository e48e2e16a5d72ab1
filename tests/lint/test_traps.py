"""Rules beyond their examples: caches that are fine, control flow that is allowed, dtypes that are evident."""

from __future__ import annotations

import pytest

from cutesmith.lint import lint_file

HOST = """\
import functools
import torch
import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import from_dlpack

@cute.kernel
def kernel(gX: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    gX[i] = gX[i] + gX[i]

@cute.jit
def host(mX: cute.Tensor):
    kernel(mX).launch(grid=[1, 1, 1], block=[32, 1, 1])

"""
BODY = """\
import math
import torch
import cutlass
import cutlass.cute as cute

@cute.kernel
def kernel(gX: cute.Tensor, gC: cute.Tensor, n: cutlass.Int32, flag: cutlass.Constexpr):
    i, _, _ = cute.arch.thread_idx()
"""


@pytest.fixture
def rules_of(write_file):
    """A function that lints source text and gives {rule: lines}."""

    def lint(text: str) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for finding in lint_file(write_file(text)).findings:
            found.setdefault(finding.rule, []).append(finding.line)
        return found

    return lint


def body(code: str) -> str:
    return BODY + "".join(f"    {line}\n" for line in code.splitlines())


CACHES = {
    "functools.cache": """
@functools.cache
def get(dtype):
    return cute.compile(host, dtype)
def kernel_fn(x):
    get(x.dtype)(x)
""",
    "dict": """
C = {}
def kernel_fn(x):
    if x.dtype not in C:
        C[x.dtype] = cute.compile(host, x)
    C[x.dtype](x)
""",
    "helper behind a look-up": """
C = {}
def build(x):
    return cute.compile(host, x)
def kernel_fn(x):
    if x.dtype not in C:
        C[x.dtype] = build(x)
    C[x.dtype](x)
""",
    "early return": """
C = {}
def get(x):
    if x.dtype in C:
        return C[x.dtype]
    C[x.dtype] = cute.compile(host, x)
    return C[x.dtype]
def kernel_fn(x):
    get(x)(x)
""",
    "global": """
G = None
def kernel_fn(x):
    global G
    if G is None:
        G = cute.compile(host, x)
    G(x)
""",
    "except KeyError": """
C = {}
def kernel_fn(x):
    try:
        f = C[x.dtype]
    except KeyError:
        f = C[x.dtype] = cute.compile(host, x)
    f(x)
""",
    "module level": """
compiled = cute.compile(host, 1)
def kernel_fn(x):
    compiled(x)
""",
}


@pytest.mark.parametrize("name", CACHES)
def test_caches_are_fine(name, rules_of):
    assert not {"CS401", "CS402", "CS503"} & rules_of(HOST + CACHES[name]).keys()


@pytest.mark.parametrize(
    "code",
    [
        "def kernel_fn(x):\n    cute.compile(host, x)(x)\n",
        "def get(x):\n    return cute.compile(host, x)\ndef kernel_fn(x):\n    get(x)(x)\n",
        "def kernel_fn(x):\n    for _ in range(1):\n        f = cute.compile(host, x)\n    f(x)\n",
        "def kernel_fn(x):\n    try:\n        f = cute.compile(host, x)\n    finally:\n        pass\n    f(x)\n",
        "def kernel_fn(x):\n    cute.compile[cute.KeepPTX(True)](host, x)(x)\n",
        "def kernel_fn(x):\n    if x.is_cuda:\n        cute.compile(host, x)(x)\n",
        "def get(x):\n    return cute.compile(host, x)\ndef kernel_fn(x):\n    if x.numel():\n        get(x)(x)\n",
        "def get(x):\n    return cute.compile(host, x)\ndef kernel_fn(x):\n    if not x.numel():\n        return x\n    get(x)(x)\n",  # noqa: E501
    ],
)
def test_compiling_at_every_call_is_found(code, rules_of):
    assert "CS402" in rules_of(HOST + code)


UNROLLED = "for i in cutlass.range_constexpr(4):\n    s = s + x[i]"


@pytest.mark.parametrize("method", [False, True])
@pytest.mark.parametrize(
    ("loop", "decorator"),
    [(UNROLLED, ""), (UNROLLED, "@cute.jit\n"), ("s = [i for i in cutlass.range(4)]", "")],
)
def test_a_loop_of_the_dsl_in_a_helper_needs_a_decorator(method, loop, decorator, rules_of):
    body = loop.replace("\n", "\n    ")
    helper = f"{decorator}def total({'self, ' * method}x):\n    s = 0\n    {body}\n    return s\n"
    kernel = f"@cute.kernel\ndef run({'self, ' * method}x: cute.Tensor):\n    x[0] = {'self.' * method}total(x)\n"
    text = helper + kernel
    if method:
        text = "class Sum:\n" + "".join(f"    {line}\n" for line in text.splitlines())
    head = "import cutlass\nimport cutlass.cute as cute\n"
    assert ("CS211" in rules_of(head + text)) == (not decorator)


def test_a_direct_call_through_a_helper_is_found(rules_of):
    assert "CS401" in rules_of(HOST + "def run(x):\n    host(x)\ndef kernel_fn(x):\n    run(x)\n")
    assert "CS401" not in rules_of(HOST + "def main(x):\n    host(x)\n"), "only kernel_fn is timed"


@pytest.mark.parametrize(
    "code",
    [
        "if cutlass.const_expr(flag):\n    return\ngC[i] = gX[i]",
        "gC[i] = gX[i]\nreturn",
        "for k in cutlass.range_constexpr(4):\n    if cutlass.const_expr(k > 2):\n        break",
        "for k in [1, 2]:\n    if cutlass.const_expr(k > 1):\n        continue",
        "if i < n:\n    def helper(a):\n        return a\n    gC[i] = helper(gX[i])",
        "x = gX[0]\nif i < n:\n    x = gX[i]\ngC[i] = x",
        "if i < n:\n    x = gX[i]\n    gC[i] = x",
        "if i < n:\n    x = gX[i]\n    gC[i] = x\nelse:\n    x = gX[0]\n    gC[0] = x",
        "if cutlass.const_expr(flag):\n    x = gX[i]\nelse:\n    x = gX[0]\ngC[i] = x",
        "for k in cutlass.range_constexpr(3):\n    x = gX[k]\ngC[i] = x",
        "for k in cutlass.range(3):\n    for m in range(4):\n        x = gX[m]\n        gC[m] = x",
        "s = 0\nfor k in cutlass.range_constexpr(4):\n    s += gX[k].to(cutlass.Float32)",
        "s = 0\nfor k in range(n):\n    s = s + k",
        "s = 0.0\nfor k in range(n):\n    s += gX[k]",
        "rows = []\nfor k in cutlass.range_constexpr(4):\n    rows.append(gX[k])",
        "y = [gX[k] for k in range(3)]\ngC[i] = y[0]",
        "m = math.ceil(cute.size(gX) / 3)\nk = int(cute.size(gX))",
        'print("tracing")',
        "gC[i] = gX[i] if i < n else gX[0]",
        "x = i & 0xFFFF\ny = cutlass.Uint32(i) & cutlass.Uint32(0xFFFF0000)",
        "x = gX.load()\ngC.store(cute.where(x < 0, cute.full_like(x, 0), x))",
        "x = gX.load().to(cutlass.Float32)\ngC.store(cute.where(x > 0, x, 0.0))",
        "x = gX.load()\ngC.store(x + x)",
        "x = gX.load().to(cutlass.Float32)\ny = (x * 2).to(gC.element_type)\ngC.store(y)",
        "lambda: [k for k in range(3)]",
    ],
)
def test_what_the_dsl_accepts_passes(code, rules_of):
    text = body(code) + "DTYPE = torch.bfloat16\n"
    assert {rule for rule in rules_of(text) if rule < "CS4"} == set()


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("while i < n:\n    i += 1\n    break", "CS201"),
        ("for k in cutlass.range(n):\n    if i > k:\n        continue", "CS201"),
        ("for k in range(4):\n    if cutlass.const_expr(flag):\n        break", "CS201"),
        ("if flag:\n    raise ValueError('x')", "CS201"),
        ("def helper(a):\n    if a > 3:\n        return a\n    return a + 1", "CS201"),
        ("for k in range(n):\n    x = gX[k]\ngC[0] = x", "CS203"),
        ("for k in range(n):\n    pass\ngC[0] = gX[k]", "CS203"),
        ("_, b, _ = cute.arch.block_idx()\ngC[_] = gX[b]", "CS205"),
        ("s = 1\nfor k in range(n):\n    s /= 2", "CS206"),
        ("s = 0\nif i < n:\n    s = 1.5", "CS206"),
        ("rows = []\nfor k in range(n):\n    rows.append(gX[k])", "CS206"),
        ("x = float(gX[i])", "CS208"),
        ("x = int(i * 2)", "CS208"),
        ("gC[i] = gX[i] * 0.5", "CS301"),
        ("x = gX.load()\ny = 1 - x\ngC.store(y)", "CS301"),
        ("gC[i] = gX[i] * cutlass.Float32(0.5)", "CS301"),
        ("x = gX.load()\ngC.store(cute.where(x > 0, -1, x))", "CS302"),
        ("x = i | 0x80000000", "CS303"),
    ],
)
def test_variants_are_found(code, rule, rules_of):
    assert rule in rules_of(body(code) + "DTYPE = torch.bfloat16\n")


def test_promotion_is_no_finding_in_a_float32_file(rules_of):
    assert "CS301" not in rules_of(body("gC[i] = gX[i] * 0.5") + "DTYPE = torch.float32\n")


def test_evident_dtypes_make_a_bare_number_an_error(write_file):
    text = body("x = gX.load().to(cutlass.BFloat16)\ny = cute.where(x > 0, x, 0.0)")
    (found,) = [f for f in lint_file(write_file(text)).findings if f.rule == "CS302"]
    assert found.severity == "error" and "BFloat16" in found.message and "full_like(x, 0.0)" in found.fix


def test_methods_are_kernels_too(rules_of):
    text = """\
import cutlass.cute as cute
class Relu:
    @cute.kernel
    def kernel(self, gX: cute.Tensor):
        pass
    @cute.jit
    def __call__(self, mX: cute.Tensor):
        self.kernel(mX)
        self.kernel(mX).launch(grid=[1], block=[2048])
"""
    found = rules_of(text)
    assert found["CS420"] == [8] and found["CS423"] == [9]


@pytest.mark.parametrize(("blocks", "found"), [("1", False), ("2", True), ("n", True)])
def test_one_block_a_multiprocessor_asks_no_driver(blocks, found, rules_of):
    launched = HOST.replace("block=[32, 1, 1]", f"block=[32, 1, 1], min_blocks_per_mp={blocks}")
    assert f"min_blocks_per_mp={blocks}" in launched and ("CS424" in rules_of(launched)) is found


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("return torch.softmax(x, -1)", "CS502"),
        ("return x.softmax(-1)", "CS502"),
        ("return x @ x", "CS502"),
        ("out = torch.empty_like(x)\n    out.relu_()\n    return out", "CS502"),
        ("return helper(x)", "CS502"),
        ("return torch.nn.functional.gelu(x)", "CS502"),
    ],
)
def test_torch_compute_in_kernel_fn(code, rule, rules_of):
    assert rule in rules_of(HOST + f"def helper(x):\n    return torch.exp(x)\ndef kernel_fn(x):\n    {code}\n")


def test_allocation_views_and_reference_code_are_allowed(rules_of):
    text = HOST + (
        "def reference_fn(x):\n    return torch.softmax(x, -1)\n"
        "def get_inputs():\n    return [torch.randn(3).exp()]\n"
        "def kernel_fn(x):\n    out = torch.empty_like(x, dtype=torch.float32)\n"
        "    stream = torch.cuda.current_stream()\n    return out.view(-1).unsqueeze(0).reshape(x.shape)\n"
    )
    assert not [rule for rule in rules_of(text) if rule.startswith("CS5")]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("gX[i] = max(cutlass.Uint64(0), gX[i])", True),
        ("gX[i] = cutlass.min(cutlass.Uint32(1), gX[i], gX[0])", True),
        ("gX[i] = cutlass.max(gX[i], cutlass.Uint64(0))", False),
        ("gX[i] = cutlass.max(cutlass.Int64(0), gX[i])", False),
        ("gX[i] = cutlass.max(cutlass.Uint32(0), cutlass.Uint32(1))", False),
        ("gX[i] = cutlass.max(cutlass.Uint32(i), gX[i])", False),
    ],
)
def test_unsigned_constants_come_last(code, found, rules_of):
    assert ("CS307" in rules_of(BODY + f"    {code}\n")) == found
