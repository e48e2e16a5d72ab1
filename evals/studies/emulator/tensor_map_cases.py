"""Copies with tensor maps that a kernel changed (`tensormap.replace`), with cache hints, and of tf32 at ties."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from cutesmith.emulator.program.abi import Array
from evals.studies.emulator import copy_kernels as kernels
from evals.studies.emulator.copy_cases import CopyCase, MapArguments, load, store, tensor
from evals.studies.emulator.copy_kernels import HEADERS

_CHANGED_AT = 16384  # of the data: where the changed maps lie, 128 bytes a set
_REPLACE = "tensormap.replace.tile."

_COPY_OF_MAP = """\
.shared .align 128 .b8 changed[128];
setp.lt.u32 %more, %thread, 32;
@!%more bra copied;
shl.b32 %i, %thread, 2;
cvt.u64.u32 %p7, %i;
add.s64 %p7, %map, %p7;
ld.b32 %r0, [%p7];
mov.u32 %r1, changed;
add.u32 %i, %r1, %i;
st.shared.b32 [%i], %r0;
bar.warp.sync 0xffffffff;
{replaced}
bar.warp.sync 0xffffffff;
mul.wide.u32 %p6, %block, 128;
add.s64 %p6, %data, %p6;
add.s64 %p6, %p6, {at};
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%p6], [changed], 128;
copied:
mul.wide.u32 %map, %block, 128;
add.s64 %map, %data, %map;
add.s64 %map, %map, {at};
bar.sync 0;
fence.proxy.tensormap::generic.acquire.gpu [%map], 128;
"""
_CHANGES: dict[str, tuple[tuple[str, ...], int, int]] = {
    "nothing": ((), 512, 2),
    "address": (("add.s64 %p5, %data, 256;", "global_address.shared::cta.b1024.b64 [changed], %p5;"), 512, 2),
    "size 0": (("global_dim.shared::cta.b1024.b32 [changed], 0, 40;",), 512, 2),
    "size 1": (("global_dim.shared::cta.b1024.b32 [changed], 1, 6;",), 512, 2),
    "stride": (("mov.b64 %p5, 416;", "global_stride.shared::cta.b1024.b64 [changed], 0, %p5;"), 512, 2),
    "box 0": (("box_dim.shared::cta.b1024.b32 [changed], 0, 16;",), 256, 2),
    "box 1": (("box_dim.shared::cta.b1024.b32 [changed], 1, 4;",), 256, 2),
    "step 1": (("element_stride.shared::cta.b1024.b32 [changed], 1, 2;",), 256, 2),
    "type u32": (("elemtype.shared::cta.b1024.b32 [changed], 2;",), 1024, 2),
    "type u8": (("elemtype.shared::cta.b1024.b32 [changed], 0;",), 256, 2),
    "swizzle 64B": (("swizzle_mode.shared::cta.b1024.b32 [changed], 2;",), 512, 2),
    "fill NaN": (
        ("elemtype.shared::cta.b1024.b32 [changed], 6;", "fill_mode.shared::cta.b1024.b32 [changed], 1;"), 512, 2,
    ),
    "rank 1": (("rank.shared::cta.b1024.b32 [changed], 0;",), 64, 1),
    "address, size and stride": (
        ("add.s64 %p5, %data, 512;", "global_address.shared::cta.b1024.b64 [changed], %p5;",
         "global_dim.shared::cta.b1024.b32 [changed], 0, 48;", "global_dim.shared::cta.b1024.b32 [changed], 1, 9;",
         "mov.b64 %p5, 112;", "global_stride.shared::cta.b1024.b64 [changed], 0, %p5;"), 512, 2,
    ),
}  # fmt: skip
"""What is changed: statements of one thread, bytes of the box then, and the dimensions of the copy."""


def _replaced() -> Iterator[CopyCase]:
    map = tensor("u16", (96, 16), (32, 8))
    starts = ((0, 0, 0, 0, 0), (16, 4, 0, 0, 0), (-16, 12, 0, 0, 0), (80, -3, 0, 0, 0))
    for name, (statements, size, rank) in _CHANGES.items():
        lines = [one if one.split(".")[0] in ("add", "mov") else _REPLACE + one for one in statements]
        change = "\n".join(f"@%first {line}" for line in lines)
        body = _COPY_OF_MAP.replace("{replaced}", change).replace("{at}", str(_CHANGED_AT))
        body += kernels.load_body(rank, "tile", size)
        yield CopyCase(f"changed map {name}", body, starts, 2048, "u16", map, 1, 2048 + 16, _CHANGED_AT + 1024)


# ---------------------------------------------------------------------------------------------------------------- hints

_POLICY = ".reg .b64 %policy;\ncreatepolicy.fractional.L2::evict_first.b64 %policy, 1.0;\n"


def _hinted_line(body: str) -> str:
    """The body, its one copy with a policy of the L2 cache."""
    (line,) = (line for line in body.splitlines() if "mbarrier::complete_tx" in line or ".bulk_group [" in line)
    head, bracket, operands = line.partition(" [")
    return _POLICY + body.replace(line, f"{head}.L2::cache_hint{bracket}{operands.removesuffix(';')}, %policy;")


def _hinted() -> Iterator[CopyCase]:
    map, starts = tensor("f16", (96, 16), (32, 8)), ((0, 0), (16, 4), (80, 10))
    plain = load("f16 with a cache hint", map, starts)
    yield replace(plain, body=_hinted_line(plain.body))
    fetched = load("f16 after a prefetch", map, starts)
    fetch = "@%first cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%map, {%c0, %c1}];\n"
    yield replace(fetched, body=fetch + fetched.body)
    kept = store("f16 with a cache hint", map, ((0, 0), (32, 8), (64, 9)))
    yield replace(kept, body=_hinted_line(kept.body))
    added = store("add f16 with a cache hint", map, ((0, 0), (32, 8), (64, 9)), "add")
    yield replace(added, body=_hinted_line(added.body))
    sizes = ((16,), (1024,), (4096,))
    yield CopyCase("bulk load with a cache hint", _hinted_line(kernels.bulk_load_body(1)), sizes, 4096, results=4112)  # noqa: E501  # fmt: skip
    yield CopyCase("bulk store with a cache hint", _hinted_line(kernels.bulk_store_body("")), sizes, 4096, results=4112)  # noqa: E501  # fmt: skip
    fetch = "@%first cp.async.bulk.prefetch.L2.global [%data], %c0;\n"
    yield CopyCase("bulk load after a prefetch", fetch + kernels.bulk_load_body(1), sizes, 4096, results=4112)


# ----------------------------------------------------------------------------------------------------------------- tf32


@dataclass(frozen=True)
class TieCase(CopyCase):
    """A copy whose data are float32 halfway between two tf32, and next to it."""

    def inputs(self) -> Array:
        """uint8: headers and data."""
        given = super().inputs()
        words = given[HEADERS:].view(np.uint32)
        low = np.array((0x1000, 0x0FFF, 0x1001, 0x1FFF, 0x0001), np.uint32)
        words[:] = words & ~np.uint32(0x1FFF) | np.resize(low, words.shape)
        return given


def _ties() -> Iterator[CopyCase]:
    for kind in ("tf32", "tf32_ftz"):
        map = tensor(kind, (64, 32), (32, 16))
        case = load(f"{kind} at ties", map, ((0, 0), (32, 16)))
        yield TieCase(**case.__dict__)


# -------------------------------------------------------------------------------------------------------------- corners


def _wide() -> Iterator[CopyCase]:
    """Boxes as large as they may be, steps with swizzles, one element."""
    yield load("u8 box of 256 x 100", tensor("u8", (300, 130), (256, 100)), ((0, 0), (48, 40), (-16, -20)))
    yield load("u8 box of 16 x 256", tensor("u8", (64, 300), (16, 256)), ((0, 0), (48, 60)))
    yield load("f64 box of 256 x 8", tensor("f64", (300, 12), (256, 8)), ((0, 0), (50, -2)))
    for swizzle, inner in (("32B", 16), ("64B", 32), ("128B", 64)):
        map = tensor("u16", (4 * inner, 40), (inner, 15), steps=(1, 3), swizzle=swizzle)
        yield load(f"u16 {swizzle} steps of 3", map, ((0, 0), (8, 7), (-8, -4), (3 * inner, 30)))
    map = tensor("f32", (32, 9, 7, 5), (32, 3, 2, 2), swizzle="128B")
    yield load("f32 128B rank 4", map, ((0, 0, 0, 0), (4, 7, -1, 4), (-8, 1, 6, 2)))
    map = MapArguments("f16", (64, 8, 8), (128, 128), (64, 4, 4), (1, 1, 1))
    yield load("f16 rows that overlap", map, ((0, 0, 0), (16, 3, 2), (0, 6, 7)))
    map = MapArguments("f16", (64, 8, 8), (0, 128), (64, 4, 4), (1, 1, 1))
    yield load("f16 stride of zero", map, ((0, 0, 0), (16, 3, 2)))


MAP_CASES = (*_replaced(), *_hinted(), *_ties(), *_wide())
