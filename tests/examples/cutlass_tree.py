"""A CUTLASS checkout in small: kernels of three architectures, a notebook, a test and package markers."""

from __future__ import annotations

import json
from pathlib import Path

FOLDER = "examples/python/CuTeDSL"
COMMIT = "0123456789abcdef0123456789abcdef01234567"

ELEMENTWISE = '''\
# SPDX-License-Identifier: BSD-3-Clause
"""Speaks of tcgen05, wgmma and TMA, and uses none of them."""
import cutlass
import cutlass.cute as cute


@cute.kernel
def add_kernel(a: cute.Tensor, b: cute.Tensor, coordinates: cute.Tensor, shape):
    x = cute.local_tile(a, (128,), (0,))
    if cute.elem_less(coordinates[0], shape):
        b[0] = x[0] + cutlass.Float16(1)


@cute.jit
def add(a: cute.Tensor, b: cute.Tensor):
    layout = cute.make_layout_tv(cute.make_layout(32), cute.make_layout(4))
    add_kernel(a, b, layout, 3).launch(grid=(1, 1, 1), block=(32, 1, 1))
'''
HOPPER = """\
import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
from cutlass.cute.nvgpu import cpasync, warpgroup


class HopperGemm:
    def __init__(self):
        self.cluster_shape_mn = (2, 1)
        self.num_stages = 4

    @cute.jit
    def __call__(self, a: cute.Tensor, alpha: cutlass.Float32, beta: cutlass.Float32):
        op = cpasync.CopyBulkTensorTileG2SOp()
        mma = warpgroup.MmaF16BF16Op(cutlass.BFloat16, cutlass.Float32)
        self.kernel(op, mma).launch(grid=(1, 1, 1), block=(128, 1, 1))

    @cute.kernel
    def kernel(self, op, mma):
        cute.arch.setmaxregister_decrease(40)
        bar = pipeline.NamedBarrier(barrier_id=1, num_threads=128)


def helper():
    return HopperGemm
"""
BLACKWELL_HELPER = "def ceil_div(a, b):\n    return (a + b - 1) // b\n\n\nclass _Private:\n    pass\n"
NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "source": ["# A title\n", "and a line"]},
        {"cell_type": "code", "source": ["%load_ext something\n", "!nvidia-smi\n", "import cutlass.cute as cute\n"]},
        {"cell_type": "code", "source": "@cute.jit\ndef show(x):\n    cute.printf('{}', x)\n"},
    ]
}
FILES = {
    "cute/ampere/kernel/elementwise/add.py": ELEMENTWISE,
    "cute/hopper/kernel/dense_gemm/gemm.py": HOPPER,
    "cute/blackwell/kernel/moe/moe_utils.py": BLACKWELL_HELPER,
    "cute/notebooks/show.ipynb": json.dumps(NOTEBOOK),
    "utils/test_utils.py": "def test_it():\n    assert True\n",
    "utils/__init__.py": "",
    "README.md": "# not an example\n",
}


def write_tree(root: Path, files: dict[str, str] | None = None) -> Path:
    """Write the files (default: FILES) under `root/examples/python/CuTeDSL`; gives `root`."""
    for path, text in (FILES if files is None else files).items():
        file = root / FOLDER / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return root


def entry(path: str, **more: object) -> str:
    """A line of curation."""
    words = {"operation": "utility", "summary": f"What {path} is.", "lesson": f"What {path} teaches."}
    return json.dumps({"path": f"{FOLDER}/{path}", **words, **more})
