"""Record warp-wide instructions on an H200 (`--record OUT`); hold the emulator's results to the recording (`--replay`).

`--record` needs a GPU, and torch for its context only; kernels are PTX loaded through the driver. The recording keeps
the first sets whole and a checksum of every set. `--ptx` prints the module, for ptxas.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))

from warp_forms import FORMS, WARP, Form  # noqa: E402

Array = np.ndarray[Any, np.dtype[Any]]
RECORDING = Path(__file__).parent / "results/emulator/mma/h200.npz"
WHOLE = 2
"""Sets of a form and kind that are kept whole."""

HEADER = ".version 8.7\n.target sm_90\n.address_size 64\n"


def kernel_ptx(form: Form, name: str) -> str:
    """An entry that runs the form once in each block of one warp: `in[set][register][lane]` to `out[set][…][lane]`."""
    size = form.bits // 8
    loads = [f"ld.global.b{form.bits} %i{r}, [%in + {r * WARP * size}];" for r in range(form.reads)]
    stores = [f"st.global.b{form.bits} [%out + {r * WARP * size}], %o{r};" for r in range(form.writes)]
    clears = [f"mov.b{form.bits} %o{r}, 0;" for r in range(form.writes)]
    shared = ".shared .align 128 .b8 rows[512];" if form.shared else ""
    base = "mov.u32 %smem, rows;" if form.shared else ""
    lines = [
        f".visible .entry {name}(.param .u64 source, .param .u64 target)",
        "{",
        f".reg .b{form.bits} %i<{form.reads}>, %o<{form.writes}>;",
        ".reg .b32 %t<4>, %lane, %set, %smem; .reg .b64 %in, %out; .reg .pred %p<2>, %q<2>;",
        shared,
        base,
        "ld.param.u64 %in, [source]; ld.param.u64 %out, [target];",
        "mov.u32 %lane, %tid.x; mov.u32 %set, %ctaid.x;",
        f"mad.wide.u32 %in, %set, {form.reads * WARP * size}, %in; mad.wide.u32 %in, %lane, {size}, %in;",
        f"mad.wide.u32 %out, %set, {form.writes * WARP * size}, %out; mad.wide.u32 %out, %lane, {size}, %out;",
        *loads,
        *clears,
        *(part.strip() + ";" for part in form.body.split(";") if part.strip()),
        "DONE:",
        *stores,
        "ret;",
        "}",
    ]
    return "\n".join(line for line in lines if line)


def module_ptx(forms: tuple[Form, ...] = FORMS) -> str:
    """All kernels, `form_0`, `form_1`, …, in one module."""
    return HEADER + "\n".join(kernel_ptx(form, f"form_{index}") for index, form in enumerate(forms))


class Driver:
    """The CUDA driver API on the context that torch holds."""

    def __init__(self, ptx: str) -> None:
        import torch

        torch.zeros(1, device="cuda")
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.module = ctypes.c_void_p()
        log = ctypes.create_string_buffer(8192)
        keys, values = (ctypes.c_int * 2)(5, 6), (ctypes.c_void_p * 2)(ctypes.addressof(log), 8192)  # the error log
        self._check(
            self.cuda.cuModuleLoadDataEx(ctypes.byref(self.module), ptx.encode(), 2, keys, values), log.value.decode()
        )

    def _check(self, code: int, what: str = "") -> None:
        if code:
            raise RuntimeError(f"CUDA driver error {code} {what}")

    def run(self, form: Form, index: int, inputs: Array) -> Array:
        """Results (sets, writes, 32) of one kernel."""
        import torch

        signed = np.int64 if form.bits == 64 else np.int32
        source = torch.from_numpy(np.ascontiguousarray(inputs, f"u{form.bits // 8}").view(signed)).cuda()
        target = torch.zeros((len(inputs), form.writes, WARP), dtype=source.dtype, device="cuda")
        function = ctypes.c_void_p()
        self._check(self.cuda.cuModuleGetFunction(ctypes.byref(function), self.module, f"form_{index}".encode()))
        pointers = [ctypes.c_uint64(tensor.data_ptr()) for tensor in (source, target)]
        arguments = (ctypes.c_void_p * 2)(*(ctypes.addressof(pointer) for pointer in pointers))
        torch.cuda.synchronize()
        self._check(self.cuda.cuLaunchKernel(function, len(inputs), 1, 1, WARP, 1, 1, 0, None, arguments, None))
        torch.cuda.synchronize()
        return target.cpu().numpy().view(f"u{form.bits // 8}")


def checksums(results: Array) -> Array:
    """uint32 (sets,) of results (sets, writes, 32)."""
    return np.array([zlib.crc32(np.ascontiguousarray(one).tobytes()) for one in results], np.uint32)


def record(out: Path, whole: int = WHOLE) -> None:
    """Run every form on the GPU and write the recording; `whole` sets are kept, the others as checksums."""
    driver = Driver(module_ptx())
    arrays: dict[str, Array] = {}
    for index, form in enumerate(FORMS):
        for kind in form.kinds:
            results = driver.run(form, index, form.inputs(kind))
            arrays[f"{form.name} {kind} whole"] = results[:whole]
            arrays[f"{form.name} {kind} checksums"] = checksums(results)
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out, **arrays)
    print(f"{len(arrays) // 2} recordings of {len(FORMS)} forms in {out}: {out.stat().st_size} bytes")


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--record", metavar="OUT", type=Path)
    group.add_argument("--ptx", action="store_true")
    parser.add_argument("--whole", type=int, default=WHOLE, help="sets kept whole (default %(default)s)")
    options = parser.parse_args()
    if options.ptx:
        print(module_ptx())
    else:
        record(options.record, options.whole)
    return 0


if __name__ == "__main__":
    sys.exit(main())
