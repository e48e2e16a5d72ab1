"""CS4xx, second half: launching kernels."""

from cutesmith.lint.catalogue.rule import Rule

_KERNEL = """
        @cute.kernel
        def kernel(gX: cute.Tensor):
            i, _, _ = cute.arch.thread_idx()
            gX[i] = gX[i] + gX[i]
"""

RULES = (
    Rule(
        "CS420",
        "error",
        "a kernel is called but not launched",
        "Calling a @cute.kernel only builds a launcher: in a @cute.jit function error[LAUNCH_NEVER_ISSUED], in "
        "plain Python "
        "nothing happens at all.",
        "Launch it: `kernel(…).launch(grid=[…], block=[…])` in a @cute.jit function.",
        _KERNEL + "\n        @cute.jit\n        def host(mX: cute.Tensor):\n            kernel(mX)\n",
        _KERNEL + "\n        @cute.jit\n        def host(mX: cute.Tensor):\n"
        "            kernel(mX).launch(grid=[1, 1, 1], block=[32, 1, 1])\n",
    ),
    Rule(
        "CS421",
        "error",
        "a kernel is launched from plain Python",
        "error[LAUNCH_OUTSIDE_JIT]: kernels can only be launched while a @cute.jit function is traced.",
        "Put the launch into a @cute.jit function, compile that with cute.compile, and call the compiled object.",
        _KERNEL + "\n        def kernel_fn(x):\n            kernel(x).launch(grid=[1, 1, 1], block=[32, 1, 1])\n"
        "            return x\n",
        _KERNEL + "\n        @cute.jit\n        def host(mX: cute.Tensor):\n"
        "            kernel(mX).launch(grid=[1, 1, 1], block=[32, 1, 1])\n",
    ),
    Rule(
        "CS422",
        "error",
        "launch takes no such keyword",
        "TypeError: LaunchConfig.__init__() got an unexpected keyword argument.",
        "Use grid, block, cluster, smem, stream, use_pdl, cooperative, max_number_threads, min_blocks_per_mp, …",
        _KERNEL + "\n        @cute.jit\n        def host(mX: cute.Tensor):\n"
        "            kernel(mX).launch(grid=[1, 1, 1], threads=[32, 1, 1])\n",
        _KERNEL + "\n        @cute.jit\n        def host(mX: cute.Tensor):\n"
        "            kernel(mX).launch(grid=[1, 1, 1], block=[32, 1, 1])\n",
    ),
    Rule(
        "CS423",
        "error",
        "the launch asks for more than any GPU has",
        "The DSL compiles it, the driver refuses it: at most 1024 threads a block, 232448 bytes of dynamic "
        "shared memory "
        "(227 KiB), 16 blocks a cluster.",
        "Make the block, the shared memory or the cluster smaller.",
        _KERNEL + "\n        @cute.jit\n        def host(mX: cute.Tensor):\n"
        "            kernel(mX).launch(grid=[1, 1, 1], block=[64, 32, 1])\n",
        _KERNEL + "\n        @cute.jit\n        def host(mX: cute.Tensor):\n"
        "            kernel(mX).launch(grid=[1, 1, 1], block=[32, 32, 1])\n",
    ),
    Rule(
        "CS424",
        "warning",
        "min_blocks_per_mp asks the driver while compiling",
        "It calls cuDeviceGet while the host function is traced, so that nothing compiles on a machine without "
        "a driver "
        "(DynamicLibNotFoundError).",
        "Set `preferred_smem_carveout=…` in the launch as well, which avoids the query, or leave "
        "min_blocks_per_mp out.",
        _KERNEL
        + "\n        @cute.jit\n        def host(mX: cute.Tensor):\n"
        + "            kernel(mX).launch(grid=[1, 1, 1], block=[32, 1, 1], min_blocks_per_mp=2)\n",
        _KERNEL
        + "\n        @cute.jit\n        def host(mX: cute.Tensor):\n            kernel(mX).launch(\n"
        + "                grid=[1, 1, 1], block=[32, 1, 1], min_blocks_per_mp=2, preferred_smem_carveout=50\n"
        "            )\n",
    ),
    Rule(
        "CS425",
        "note",
        "a launch without a block size",
        "`block` defaults to one thread, `grid` to one block: the kernel compiles and runs with a single thread.",
        "Pass both: `.launch(grid=[…], block=[…])`.",
        _KERNEL
        + "\n        @cute.jit\n        def host(mX: cute.Tensor):\n            kernel(mX).launch(grid=[1, 1, 1])\n",
        _KERNEL + "\n        @cute.jit\n        def host(mX: cute.Tensor):\n"
        "            kernel(mX).launch(grid=[1, 1, 1], block=[32, 1, 1])\n",
    ),
)
