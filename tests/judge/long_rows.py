"""Kernels that scale rows, honest or wrong only where the inputs are long; see test_longer_cases.py."""

SOURCE = """
import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

THREADS = 32


@cute.kernel
def scale_kernel(mX: cute.Tensor, mW: cute.Tensor, mY: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    for row in range(block, LAST_ROW, blocks):
        for column in range(thread, LAST_COLUMN, THREADS):
            mY[row, column] = mX[row, column] * mW[INDEX]


@cute.jit
def scale(mX: cute.Tensor, mW: cute.Tensor, mY: cute.Tensor, stream):
    scale_kernel(mX, mW, mY).launch(grid=[cutlass.min(mX.shape[0], BLOCKS), 1, 1], block=[THREADS, 1, 1], stream=stream)


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), KNOWN_COLUMNS
    x, y = (make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0)) for _ in range(2))
    w, stream = make_fake_compact_tensor(cutlass.Float32, (rows,)), make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(scale, x, w, y, stream, options="--enable-tvm-ffi")


def kernel_fn(x, w):
    REFUSAL
    y = torch.empty_like(x)
    compiled()(x, w, y)
    return y


def reference_fn(x, w):
    return x * w[:, None]


def get_inputs():
    return [torch.randn(ROWS, COLUMNS, device="cuda"), torch.randn(ROWS, device="cuda")]


DERIVED_SHAPES = PROMISED
"""
HONEST = {
    "LAST_ROW": "mX.shape[0]",
    "LAST_COLUMN": "mX.shape[1]",
    "INDEX": "row % mX.shape[0]",
    "BLOCKS": "2048",
    "KNOWN_COLUMNS": "cute.sym_int()",
    "REFUSAL": "pass",
    "ROWS": "4096",
    "COLUMNS": "2048",
    "PROMISED": "True",
}


def long_rows(**changes: str) -> str:
    """The file with these of its words changed."""
    text = SOURCE
    for word in sorted(HONEST, key=len, reverse=True):
        text = text.replace(word, {**HONEST, **changes}[word])
    return text
