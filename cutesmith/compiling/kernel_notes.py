"""What a compiled kernel should be told of itself: what ptxas changed, where and why registers ran out, registers by
role, loads that wait for one another."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from cutesmith.devices import parse_arch
from cutesmith.recording.cubin import CubinKernel
from cutesmith.recording.ptx import PtxasNote, PtxKernel, Spills, source_place
from cutesmith.recording.sessions import Launch, Module

_WARPGROUP = 128
_REGISTERS, _MOST_REGISTERS = 65536, 255  # of an SM, and of a thread
_STEP = 8  # registers are given out in so many
_QUARTERS = 4  # of an SM, each with a share of the registers for the warps that it holds
_NAME_MATTERS = (10, 11)  # major versions on which ptxas was seen to spill by the kernel's name
_MEANING = {
    "C7510": "wgmma are serialised: each waits for the one before it",
    "C7517": "ptxas inserts a wait for wgmma: registers of the accumulator are used while it works",
    "C7519": "ptxas inserts a wgmma fence: registers of the accumulator are written before it works",
}
"""In words; C7517 and C7519 as the ptxas of DSL 4.8.1 gives them. Any other note is passed on as it is."""


def kernel_notes(launch: Launch, kernel: CubinKernel, module: Module, ptx: PtxKernel) -> tuple[str, ...]:
    """One sentence each."""
    return (
        *(_of_ptxas(note, module) for note in module.notes.get(launch.kernel, ())),
        *_of_waits(kernel, ptx),
        *_of_spills(launch, kernel, module, ptx),
        *_of_loads(kernel),
        *_of_roles(launch, kernel, ptx),
    )


def _of_ptxas(note: PtxasNote, module: Module) -> str:
    where = source_place(module.ptx, note.line) if note.line else ""
    meaning = f" ({_MEANING[note.code]})" if note.code in _MEANING else ""
    return f"ptxas {note.code}{f' at {where}' if where else ''}: {note.message}{meaning}"


def _of_waits(kernel: CubinKernel, ptx: PtxKernel) -> Iterator[str]:
    """Waits for wgmma that ptxas added; where it unrolled a loop, there are more of both."""
    asked = sum(count for opcode, count in ptx.tensor_core.items() if opcode.startswith("wgmma"))
    if asked and kernel.wgmma and kernel.wgmma_waits * asked > ptx.wgmma_waits * kernel.wgmma:
        yield (
            f"ptxas waits {kernel.wgmma_waits} times for {kernel.wgmma} wgmma, the kernel {ptx.wgmma_waits} times for "
            f"{asked}: products wait for one another. Threads may diverge there: pass the lengths of loops around them "
            "through `cute.arch.make_warp_uniform`, and put a barrier of the warpgroup after divergent branches; or "
            "registers of an operand are written between products (references/concepts-mma.md#wgmma-on-sm_90a)"
        )


def _of_spills(launch: Launch, kernel: CubinKernel, module: Module, ptx: PtxKernel) -> Iterator[str]:
    spills = module.spills.get(launch.kernel, Spills())
    if not spills.store_bytes:
        return
    near = f"; most seem to be live near {spills.place} (the DSL's guess)" if spills.place else ""
    limit = _register_limit(prod(launch.block), kernel.registers, ptx)
    inside = kernel.local_in_loops
    where = f"{inside} of the spill's loads and stores lie in a loop" if inside else "no loop has any of them"
    yield f"registers ran out at {kernel.registers} a thread{near}; {limit}; {where}"
    if "cutlass" in launch.kernel and parse_arch(module.arch).sm.capability[0] in _NAME_MATTERS:
        fix = '`kernel.set_name_prefix("", remove_cutlass_symbol=True)`'
        yield f'ptxas may spill because the kernel\'s name contains "cutlass" (NVIDIA/cutlass #3389): try {fix}'


def _register_limit(threads: int, registers: int, ptx: PtxKernel) -> str:
    """What kept ptxas from using more, and what to change."""
    if registers >= _MOST_REGISTERS - 1:
        return f"a thread can address {_MOST_REGISTERS}: give it a smaller part of the tile"
    alone, share = _fair_share(threads, 1), _fair_share(threads, max(1, ptx.min_blocks))
    if 0 < ptx.max_registers <= min(share, registers + _STEP):
        return f"its own maxnreg={ptx.max_registers} holds them there: raise it"
    if registers + _STEP >= share and share < alone:
        return f"min_blocks_per_mp={ptx.min_blocks} leaves {share} of the {alone} that one block may have: lower it"
    if registers + _STEP >= share:
        return f"a block of {threads} threads has {share} for each: use fewer threads or a smaller tile"
    return f"a block of {threads} threads may have {share} for each, and no cap of its own holds it below"


def _fair_share(threads: int, blocks: int) -> int:
    """The registers that each thread may have where so many blocks share a multiprocessor."""
    warps = blocks * -(-threads // 32)
    return min(_MOST_REGISTERS, _REGISTERS // _QUARTERS // -(-warps // _QUARTERS) // 32 // _STEP * _STEP)


def _of_loads(kernel: CubinKernel) -> Iterator[str]:
    """Loads that are issued one at a time; a load of 16 bytes in a loop is one of those that may be."""
    loads = kernel.global_loads
    if loads.count > 1 and loads.in_flight == 1:
        remedy = "load all into a register tensor first, then compute"
        yield f"each of the {loads.count} global loads is waited for before the next is issued: {remedy}"


def _of_roles(launch: Launch, kernel: CubinKernel, ptx: PtxKernel) -> Iterator[str]:
    """`setmaxnreg` by role; an increase waits until as many registers of the block are free."""
    if not ptx.decreased and not ptx.increased:
        return
    if not kernel.moves_registers:
        yield (
            f"ptxas left setmaxnreg out: every role has {kernel.registers} registers a thread; "
            "if one of them spills, give min_blocks_per_mp in the launch"
        )
        return
    groups, start = -(-prod(launch.block) // _WARPGROUP), -(-kernel.registers // 8) * 8
    roles = [f"down to {count}" for count in sorted(set(ptx.decreased))]
    roles += [f"up to {count}" for count in sorted(set(ptx.increased))]
    text = f"setmaxnreg: {', '.join(roles)}; {groups} warpgroups start with {start} each"
    if len(set(ptx.decreased)) == len(set(ptx.increased)) == 1 and groups > 1:
        down, up, have = ptx.decreased[0], ptx.increased[0], groups * start
        wanted = down + (groups - 1) * up
        text += f": {down} + {groups - 1} × {up} = {wanted} of {have} if one of them goes down"
        if wanted > have:
            text += ", so an increase would wait for ever"
    yield text
