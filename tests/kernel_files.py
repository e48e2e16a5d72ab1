"""Kernel files for tests of several rooms: those in `kernels/`, and variants of its `copy.py` by a line or two."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

KERNELS = Path(__file__).parent / "kernels"

LAUNCH = "grid=[8, 1, 1], block=[128, 1, 1]"
CHECK = "    if i < cute.size(gx):"
BODY = f"    i = bidx * 128 + tidx\n{CHECK}\n        gy[i] = gx[i]\n"
EMPTY = "    y = torch.empty_like(x)\n"
CALL = "    _compiled(x, y)\n"
LARGE = {LAUNCH: "grid=[cute.size(x) // 128, 1, 1], block=[128, 1, 1]"}

VARIANTS: dict[str, dict[str, str]] = {
    # What the hardware refuses
    "copy_2048_threads": {"bidx * 128": "bidx * 2048", LAUNCH: "grid=[1, 1, 1], block=[2048, 1, 1]"},
    "copy_over_smem": {LAUNCH: f"{LAUNCH}, smem=400_000"},
    "copy_cooperative": {LAUNCH: "grid=[1 << 16, 1, 1], block=[128, 1, 1], cooperative=True"},
    "copy_odd_cluster": {LAUNCH: "grid=[7, 1, 1], block=[128, 1, 1], cluster=[2, 1, 1]"},
    "copy_wide_cluster": {LAUNCH: "grid=[32, 1, 1], block=[128, 1, 1], cluster=[32, 1, 1]"},
    # What runs in another way
    "copy_cluster": {LAUNCH: f"{LAUNCH}, cluster=[2, 1, 1]"},
    "copy_of_8_gigabytes": {**LARGE, "torch.randn(1024": "torch.randn(1 << 31"},
    "copy_three_launches": {  # twice, then once more on half of the elements
        **LARGE,
        CALL: """\
    for _ in range(2):
        _compiled(x, y)
    half = x.numel() // 2
    cute.compile(copy, _view(x[:half]), _view(y[:half]), options="--enable-tvm-ffi")(x[:half], y[:half])
""",
    },
    "copy_sum_of_neighbours": {"gy[i] = gx[i]": "gy[i] = gx[i] + gx[1023 - i] + gx[i ^ 1] + gx[i ^ 2]"},
    "copy_chain": {  # each load needs the value of the one before
        BODY: """\
    j = bidx * 128 + tidx
    for _ in cutlass.range_constexpr(4):
        j = cutlass.Int32(gx[j]) & 1023
    gy[bidx * 128 + tidx] = gx[j]
""",
        "import cutlass.cute as cute": "import cutlass\nimport cutlass.cute as cute",
    },
    # A launch that depends on a value: tensors without storage cannot tell it
    "copy_reads_values": {EMPTY: f"{EMPTY}    if x.abs().max().item() > 1e6:\n        return y\n"},
    "copy_no_launch": {CALL: "    y.copy_(x)\n"},
    "copy_crashes": {EMPTY: f'{EMPTY}    raise RuntimeError("no such tile: 17")\n'},
    "many_spills": {  # ptxas holds it to few registers
        BODY: """\
    held = cute.make_rmem_tensor((200,), cutlass.Float32)
    for i in cutlass.range(200, unroll_full=True):
        held[i] = gx[i * 1024 + tidx]
    for _ in range(cutlass.Int32(gx[0])):
        for i in cutlass.range(200, unroll_full=True):
            held[i] = held[i] * held[(i * 7) % 200]
    for i in cutlass.range(200, unroll_full=True):
        gy[i * 1024 + tidx] = held[i]
""",
        "import cutlass.cute as cute": "import cutlass\nimport cutlass.cute as cute",
        LAUNCH: "grid=[1, 1, 1], block=[1024, 1, 1]",
        "torch.randn(1024": "torch.randn(1024 * 200",
    },
    # What does not compile: a return that only the GPU knows of, an instruction that sm_80 lacks, mixed types
    "early_return": {
        BODY: BODY.replace(CHECK, "    if i >= cute.size(gx):\n        return").replace("        gy", "    gy")
    },
    "hopper_only": {CHECK: f"    with cute.arch.elect_one():\n        cute.arch.griddepcontrol_wait()\n{CHECK}"},
    "copy_type_error": {
        BODY: """\
    x = cute.zipped_divide(gx, (4,))[(None, bidx * 128 + tidx)].load()
    cute.zipped_divide(gy, (4,))[(None, bidx * 128 + tidx)].store(cute.where(x > 0, x, 0))
"""
    },
}

_folder = tempfile.TemporaryDirectory(prefix="cutesmith-kernels-")


@functools.cache
def kernel_file(name: str) -> Path:
    """`kernels/NAME.py`, or the variant of that name, written into a folder of this process."""
    if name not in VARIANTS:
        return KERNELS / f"{name}.py"
    text = (KERNELS / "copy.py").read_text()
    for old, new in VARIANTS[name].items():
        assert text.count(old) == 1, f"{name}: {old!r} is not in copy.py once"
        text = text.replace(old, new)
    path = Path(_folder.name) / f"{name}.py"
    path.write_text(text)
    return path
