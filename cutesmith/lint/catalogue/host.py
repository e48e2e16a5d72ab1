"""CS4xx, first half: compiling, caching and passing tensors from host code."""

from cutesmith.lint.catalogue.rule import Rule

_HOST = """
        @cute.kernel
        def kernel(gX: cute.Tensor):
            i, _, _ = cute.arch.thread_idx()
            gX[i] = gX[i] + gX[i]

        @cute.jit
        def host(mX: cute.Tensor):
            kernel(mX).launch(grid=[1, 1, 1], block=[32, 1, 1])
"""
_CACHED = (
    _HOST
    + """
        import functools

        @functools.cache
        def compiled(dtype):
            n = cute.sym_int(divisibility=8)
            fake = cute.runtime.make_fake_compact_tensor(dtype, (n,), assumed_align=16)
            return cute.compile(host, fake, options="--enable-tvm-ffi")

        def kernel_fn(x):
            out = torch.empty_like(x)
            compiled(cutlass.Float32)(out)
            return out
"""
)

RULES = (
    Rule(
        "CS401",
        "error",
        "kernel_fn calls a @cute.jit function directly",
        "A direct call traces the function again every time: 16–20 ms a call, against 6 µs for a compiled object.",
        "Compile once with cute.compile in a cached helper, and call what it returns.",
        _HOST
        + "\n        def kernel_fn(x):\n            host(from_dlpack(x, assumed_align=16))\n            return x\n",
        _CACHED,
    ),
    Rule(
        "CS402",
        "error",
        "kernel_fn compiles at every call",
        "`cute.compile` never caches: each call traces and compiles again (0.1 s for a small kernel, seconds "
        "for a GEMM).",
        "Compile in a helper under @functools.cache (keyed by dtype and static sizes), or keep the object in a "
        "dict that is "
        "asked first.",
        _HOST
        + """
        def kernel_fn(x):
            compiled = cute.compile(host, from_dlpack(x, assumed_align=16), options="--enable-tvm-ffi")
            compiled(x)
            return x
        """,
        _CACHED,
    ),
    Rule(
        "CS403",
        "warning",
        "from_dlpack without assumed_align",
        "Without it the pointer is taken to be aligned to one element: a 128-bit copy is refused (ptr alignment "
        "(16 bits) "
        "does not meet requirement (128 bits)) and loads are not vectorised.",
        "Pass `assumed_align=16`: torch allocations are aligned to 16 bytes and more, though slices of them "
        "need not be.",
        "def convert(x):\n    return from_dlpack(x)",
        "def convert(x):\n    return from_dlpack(x, assumed_align=16)",
    ),
    Rule(
        "CS404",
        "error",
        "a dynamic layout whose leading dimension cannot be found",
        "`mark_layout_dynamic()` on a tensor of more than one dimension and one element raises RuntimeError: "
        "Can't deduce the "
        "leading dimension from layout.",
        "Pass `leading_dim=…`, or compile with a fake tensor (`cute.runtime.make_fake_compact_tensor`).",
        "def one():\n    return from_dlpack(torch.empty(1, 1), assumed_align=16).mark_layout_dynamic()",
        "def one():\n    return from_dlpack(torch.empty(1, 1), assumed_align=16).mark_layout_dynamic(leading_dim=1)",
    ),
    Rule(
        "CS405",
        "error",
        "postponed annotations in a file with @cute.struct",
        "`@cute.struct` reads raw annotations; with `from __future__ import annotations` they are strings: "
        "TypeError: Struct "
        "element only support struct/array/base_dsl scalar.",
        "Remove the `from __future__ import annotations`.",
        """from __future__ import annotations

@cute.struct
class Storage:
    sums: cute.struct.MemRange[cutlass.Float32, 32]
""",
        """
        @cute.struct
        class Storage:
            sums: cute.struct.MemRange[cutlass.Float32, 32]
        """,
    ),
    Rule(
        "CS406",
        "note",
        "compiled without TVM-FFI",
        "Through TVM-FFI a compiled kernel takes torch tensors as they are: 6 µs of host time a call on an "
        "H200, against "
        "25 µs through from_dlpack.",
        'Pass `options="--enable-tvm-ffi"` to cute.compile (needs apache-tvm-ffi), and torch tensors to the '
        "compiled object.",
        _CACHED.replace(', options="--enable-tvm-ffi"', ""),
        _CACHED,
    ),
    Rule(
        "CS407",
        "error",
        "cute.compile of something that is no @cute.jit function",
        "A lambda, a plain function or a @cute.kernel cannot be compiled: error[CALL_MISSING_JIT_DECORATOR] or "
        "error[CALL_KERNEL_TARGET].",
        "Compile the @cute.jit function that launches the kernel.",
        _HOST + "\n        def compiled(x):\n            return cute.compile(kernel, x, options='--enable-tvm-ffi')\n",
        _HOST + "\n        def compiled(x):\n            return cute.compile(host, x, options='--enable-tvm-ffi')\n",
    ),
    Rule(
        "CS408",
        "error",
        "kernel source from a string",
        "The DSL reads a function's source file: functions made by `exec` raise error[UNSUP_NO_SOURCE]. Only a "
        "`linecache` "
        "entry made before `exec` gives them a source.",
        "Write the kernel into the file itself.",
        'SOURCE = """\n@cute.jit\ndef host(x):\n    pass\n"""\nexec(SOURCE, globals())',
        "@cute.jit\ndef host(x):\n    pass",
    ),
)
