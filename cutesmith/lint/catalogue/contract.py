"""CS0xx and CS5xx: the file itself, the contract of a kernel file, and what verification will reject."""

from cutesmith.lint.catalogue.rule import Rule

_COMPILED = (
    "\n        def kernel_fn(x):\n            out = torch.empty_like(x)\n            compiled(x.dtype)(x, out)\n"
)
_REFERENCE = """
        def reference_fn(x):
            return torch.relu(x)

        def get_inputs():
            return [torch.randn(64, device="cuda")]
"""

RULES = (
    Rule(
        "CS001",
        "error",
        "the file is not Python",
        "A syntax error: nothing else can be checked. Exit code 2.",
        "Correct the line.",
        "def kernel_fn(x:\n    return x",
        "def kernel_fn(x):\n    return x",
    ),
    Rule(
        "CS002",
        "note",
        "the DSL is not installed here",
        "Names, keywords and deprecations (CS101–CS107) are judged against the installed package; without it "
        "only the other "
        "rules run.",
        "pip install 'nvidia-cutlass-dsl>=4.8'",
        "",
        "",
    ),
    Rule(
        "CS003",
        "note",
        "a suppression names no rule",
        "`# cutesmith: ignore[…]` with an unknown rule id suppresses nothing.",
        "Use an id of `cutesmith lint --rules`.",
        "x = 1  # cutesmith: ignore[CS999]",
        "x = 1  # cutesmith: ignore[CS101]",
    ),
    Rule(
        "CS501",
        "note",
        "a name of the contract is missing",
        "A kernel file defines kernel_fn, reference_fn and get_inputs; verify and benchmark need all three.",
        "Define kernel_fn(*inputs), reference_fn(*inputs) and get_inputs().",
        _COMPILED + "            return out\n",
        _COMPILED + "            return out\n" + _REFERENCE,
    ),
    Rule(
        "CS502",
        "warning",
        "kernel_fn computes with torch",
        "Only allocation and view operations of torch are allowed within kernel_fn; verify rejects the rest (rule W1).",
        "Do the computation in the CuTe DSL kernel; keep torch.empty/empty_like/zeros and views.",
        _REFERENCE + _COMPILED + "            return torch.relu(out)\n",
        _REFERENCE + _COMPILED + "            return out.view(-1)\n",
    ),
    Rule(
        "CS503",
        "warning",
        "kernel_fn falls back when the kernel fails",
        "A `try` around the kernel hides that it does not work; verify rejects it (rule W3).",
        "Let the error surface.",
        _REFERENCE
        + """
        def kernel_fn(x):
            out = torch.empty_like(x)
            try:
                compiled(x.dtype)(x, out)
            except Exception:
                return x.clone()
            return out
        """,
        _REFERENCE + _COMPILED + "            return out\n",
    ),
    Rule(
        "CS504",
        "warning",
        "kernel_fn uses reference_fn",
        "kernel_fn must compute by itself; reference_fn is absent from the process that runs it (rule W4).",
        "Write the computation as a kernel.",
        _REFERENCE + "\n        def kernel_fn(x):\n            return reference_fn(x)\n",
        _REFERENCE + _COMPILED + "            return out\n",
    ),
    Rule(
        "CS505",
        "warning",
        "code that the static checks cannot see through",
        "`exec`, `eval`, `compile`, `__import__`, ctypes and cffi are findings of their own (rule H7): what "
        "they run cannot "
        "be judged.",
        "Write the code out.",
        'def kernel_fn(x):\n    return eval("x + 1")',
        "def kernel_fn(x):\n    return x",
    ),
)
