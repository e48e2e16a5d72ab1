"""CS3xx: dtypes of values while a kernel is traced."""

from cutesmith.lint.catalogue.rule import Rule

RULES = (
    Rule(
        "CS301",
        "warning",
        "a promoted value is stored into a 16-bit tensor",
        "A Float16 or BFloat16 value times, plus or minus a Python number (or a Float32) becomes Float32, for "
        "scalars and "
        "for `.load()` values alike; storing it raises ValueError: Type mismatch, store Float32 … to Tensor "
        "with element "
        "type Float16. `x + x` keeps the type.",
        "Convert before the store: `(expression).to(out.element_type)`.",
        """
        @cute.kernel
        def kernel(gX: cute.Tensor, gOut: cute.Tensor):
            x = gX.load()
            gOut.store(x * 2)

        DTYPE = torch.float16
        """,
        """
        @cute.kernel
        def kernel(gX: cute.Tensor, gOut: cute.Tensor):
            x = gX.load()
            gOut.store((x * 2).to(gOut.element_type))

        DTYPE = torch.float16
        """,
    ),
    Rule(
        "CS302",
        "warning",
        "cute.where with a bare number",
        "Both values need one dtype: a bare `0` is Int32 and a bare `0.0` is Float32, hence ValueError: x and y "
        "must have "
        "the same dtype, but got Float16 and Int32. Only `0.0` with Float32 and `0` with Int32 work.",
        "Write `cute.full_like(x, 0)` for the number.",
        """
        @cute.kernel
        def kernel(gX: cute.Tensor):
            x = gX.load()
            gX.store(cute.where(x > 0, x, 0))
        """,
        """
        @cute.kernel
        def kernel(gX: cute.Tensor):
            x = gX.load()
            gX.store(cute.where(x < 0, cute.full_like(x, 0), x))
        """,
    ),
    Rule(
        "CS303",
        "warning",
        "a mask of 2**31 or more widens the result to 64 bits",
        "A Python integer above 0x7FFFFFFF is an Int64: `Uint32(x) & 0xFFFF0000` gives Int64, which costs "
        "registers and "
        "breaks code that expects 32 bits.",
        "Wrap the literal: `cutlass.Uint32(0xFFFF0000)`.",
        """
        @cute.kernel
        def kernel(gX: cute.Tensor):
            i, _, _ = cute.arch.thread_idx()
            high = cutlass.Uint32(i) & 0xFFFF0000
        """,
        """
        @cute.kernel
        def kernel(gX: cute.Tensor):
            i, _, _ = cute.arch.thread_idx()
            high = cutlass.Uint32(i) & cutlass.Uint32(0xFFFF0000)
        """,
    ),
    Rule(
        "CS304",
        "warning",
        "true division of integer vectors",
        "`/` on an integer `.load()` value computes in Float32 but the result is labelled Int32: what follows "
        "reads it wrong.",
        "Use `//`, or convert first: `x.to(cutlass.Float32) / 2.0`.",
        """
        @cute.kernel
        def kernel(gX: cute.Tensor):
            x = gX.load().to(cutlass.Int32)
            half = x / 2
        """,
        """
        @cute.kernel
        def kernel(gX: cute.Tensor):
            x = gX.load().to(cutlass.Int32)
            half = x // 2
        """,
    ),
    Rule(
        "CS305",
        "error",
        "mcast_mask is a Python integer",
        "A TMA multicast mask must be a DSL integer; a Python one is dropped and the error misleads: "
        '"expects a multicast mask to be provided".',
        "Wrap it: `mcast_mask=cutlass.Int16(mask)`.",
        """
        @cute.kernel
        def kernel(atom: cute.CopyAtom, gX: cute.Tensor, sX: cute.Tensor):
            cute.copy(atom, gX, sX, mcast_mask=3)
        """,
        """
        @cute.kernel
        def kernel(atom: cute.CopyAtom, gX: cute.Tensor, sX: cute.Tensor):
            cute.copy(atom, gX, sX, mcast_mask=cutlass.Int16(3))
        """,
    ),
    Rule(
        "CS306",
        "error",
        "an invariant load with an L1 eviction priority",
        "`CopyG2ROp` takes `invariant=True` or an `l1c_evict_priority`, not both: TypeError: invariant_load is not "
        "allowed when the other non-default memory features are set.",
        "Leave one of the two out (plain `ld.global.nc` was the faster on an H200).",
        """
        @cute.kernel
        def kernel(gX: cute.Tensor):
            atom = cute.make_copy_atom(
                cute.nvgpu.CopyG2ROp(),
                gX.element_type,
                num_bits_per_copy=128,
                invariant=True,
                l1c_evict_priority=cute.nvgpu.CacheEvictionPriority.NO_ALLOCATE,
            )
        """,
        """
        @cute.kernel
        def kernel(gX: cute.Tensor):
            atom = cute.make_copy_atom(cute.nvgpu.CopyG2ROp(), gX.element_type, num_bits_per_copy=128, invariant=True)
        """,
    ),
)
