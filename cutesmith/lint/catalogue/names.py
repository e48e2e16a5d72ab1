"""CS1xx: names, keywords and environment variables, judged against the installed DSL."""

from cutesmith.lint.catalogue.rule import Rule

RULES = (
    Rule(
        "CS101",
        "error",
        "the DSL has no such name",
        "The name is looked up in the installed package; using it raises AttributeError while the kernel is traced.",
        "Use the suggested name, or look for one with `dir()` of the module named in the message.",
        """
        @cute.kernel
        def kernel(gX: cute.Tensor):
            r = cute.make_fragment(8, gX.element_type)
            cute.syncthreads()
        """,
        """
        @cute.kernel
        def kernel(gX: cute.Tensor):
            r = cute.make_rmem_tensor(8, gX.element_type)
            cute.arch.sync_threads()
        """,
    ),
    Rule(
        "CS102",
        "error",
        "the import finds nothing",
        "The module or the name does not exist in the installed package; the file cannot be imported. "
        "An import inside `try: … except ImportError:` is left alone.",
        "Import the suggested name instead.",
        "from cutlass.cute import pipeline\nimport cutlass.cute.pipeline as pipe",
        "from cutlass import pipeline\nimport cutlass.pipeline as pipe",
    ),
    Rule(
        "CS103",
        "warning",
        "the name is deprecated",
        "The package itself declares it deprecated (decorator, module hook or warning); the next version may drop it.",
        "Use the replacement that the message names.",
        "def allocate():\n    return cutlass.utils.SmemAllocator()",
        "import cutlass.memory\n\ndef allocate():\n    return cutlass.memory.SmemAllocator()",
    ),
    Rule(
        "CS104",
        "warning",
        "the keyword argument is deprecated",
        "The package warns when this keyword is passed.",
        "Drop the keyword, or use the one that the message names.",
        """
        @cute.kernel
        def kernel(gX: cute.Tensor, n: cutlass.Int32):
            for i in cutlass.range(n, pipelining=2):
                gX[i] = gX[i] + gX[i]
        """,
        """
        @cute.kernel
        def kernel(gX: cute.Tensor, n: cutlass.Int32):
            for i in cutlass.range(n, prefetch_stages=2):
                gX[i] = gX[i] + gX[i]
        """,
    ),
    Rule(
        "CS105",
        "error",
        "the function takes no such keyword argument",
        "The signature of the installed function has neither this keyword nor `**kwargs`: the call raises TypeError.",
        "Use a keyword of the signature in the message.",
        "def fake():\n    return cute.runtime.make_fake_compact_tensor(cutlass.Float32, (64,), alignment=16)",
        "def fake():\n    return cute.runtime.make_fake_compact_tensor(cutlass.Float32, (64,), assumed_align=16)",
    ),
    Rule(
        "CS106",
        "error",
        "instances have no such attribute",
        "A parameter annotated `cute.Tensor` (or what its `.load()` gives) has no attribute of that name in the "
        "installed "
        "package: tracing raises AttributeError.",
        "Use an attribute that exists: element_type, shape, stride, layout, iterator, memspace, load(), "
        "store(), fill(), …",
        """
        @cute.kernel
        def kernel(gX: cute.Tensor):
            gX.store(gX.load().astype(gX.dtype_of()))
        """,
        """
        @cute.kernel
        def kernel(gX: cute.Tensor):
            gX.store(gX.load().to(gX.element_type))
        """,
    ),
    Rule(
        "CS107",
        "warning",
        "the submodule is not imported",
        "`import cutlass` does not import it: reading it as an attribute raises AttributeError unless something else "
        "happened to import it first.",
        "Import the submodule by its full name.",
        "def numpy_dtype():\n    return cutlass.torch.dtype(cutlass.Float32)",
        "import cutlass.torch\n\ndef torch_dtype():\n    return cutlass.torch.dtype(cutlass.Float32)",
    ),
    Rule(
        "CS110",
        "warning",
        "the environment variable is deprecated",
        "`CUTE_DSL_KEEP_IR`, `_PTX`, `_CUBIN` and `_SASS` warn; one variable, `CUTE_DSL_KEEP`, takes a list of words.",
        "Set CUTE_DSL_KEEP to the words wanted, for example CUTE_DSL_KEEP=ptx,cubin.",
        'import os\nos.environ["CUTE_DSL_KEEP_PTX"] = "1"',
        'import os\nos.environ["CUTE_DSL_KEEP"] = "ptx"',
    ),
    Rule(
        "CS111",
        "warning",
        "the DSL ignores this environment variable",
        "Unknown `CUTE_DSL_*` variables and unknown words of `CUTE_DSL_KEEP` are ignored in silence.",
        "Use a variable that the DSL reads, or a word that CUTE_DSL_KEEP knows (the message lists them).",
        'import os\nos.environ["CUTE_DSL_KEEP"] = "ptx,sas"',
        'import os\nos.environ["CUTE_DSL_KEEP"] = "ptx,sass"',
    ),
    Rule(
        "CS112",
        "warning",
        "the architecture is set too late",
        "`CUTE_DSL_ARCH` is read when the DSL is imported; set afterwards it changes nothing, and with no GPU the DSL "
        "silently compiles for sm_100a.",
        "Set it before the first `import cutlass`, or pass `--gpu-arch=…` in the options of cute.compile.",
        'import os\nos.environ["CUTE_DSL_ARCH"] = "sm_90a"',
        "def host_arch():\n    import os\n    return os.environ.get('CUTE_DSL_ARCH')",
    ),
)
