"""A kernel that adds one to 64 elements in place."""

import cutlass.cute as cute


@cute.kernel
def increment_kernel(x: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    x[thread] = x[thread] + 1.0


@cute.jit
def increment(x: cute.Tensor):
    increment_kernel(x).launch(grid=(1, 1, 1), block=(64, 1, 1))
