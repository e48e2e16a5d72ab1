"""A recording session as kernel reports: what each launched kernel uses, its occupancy, and what would be refused."""

from __future__ import annotations

from collections import Counter
from math import prod

from cutesmith.devices import occupancy, parse_arch
from cutesmith.recording.launch_limits import launch_shape, refusals
from cutesmith.recording.ptx import PtxKernel, read_ptx
from cutesmith.recording.sessions import Launch, Session
from cutesmith.verdicts import KernelReport


def kernel_reports(session: Session) -> tuple[KernelReport, ...]:
    """One report for each distinct launch (kernel, grid, block, cluster, shared memory), in order of first launch."""
    counts = Counter(_identity(launch) for launch in session.launches)
    first = {_identity(launch): launch for launch in reversed(session.launches)}
    return tuple(_report(session, first[identity], count) for identity, count in counts.items())


def _identity(launch: Launch) -> tuple[object, ...]:
    return (launch.kernel, launch.grid, launch.block, launch.cluster, launch.dynamic_smem)


def _report(session: Session, launch: Launch, count: int) -> KernelReport:
    kernel, module = session.kernel(launch.kernel), session.module_of(launch.kernel)
    if kernel is None:
        raise KeyError(f"kernel {launch.kernel} was launched, but no cubin holds it")
    entries = read_ptx(module.ptx) if module else {}
    ptx = entries.get(launch.kernel, PtxKernel(name=launch.kernel, widest_load_bits=0, widest_store_bits=0))
    spills = module.spills.get(launch.kernel) if module else None
    sm = parse_arch(session.arch).sm
    smem = kernel.static_smem_bytes + launch.dynamic_smem
    fits = occupancy(sm, threads=prod(launch.block), registers=kernel.registers, smem=smem)
    return KernelReport(
        name=launch.kernel,
        arch=session.arch,
        registers=kernel.registers,
        stack_bytes=kernel.stack_bytes,
        spill_store_bytes=spills.store_bytes if spills else None,
        spill_load_bytes=spills.load_bytes if spills else None,
        static_smem_bytes=kernel.static_smem_bytes,
        dynamic_smem_bytes=launch.dynamic_smem,
        grid=launch.grid,
        block=launch.block,
        cluster=launch.cluster,
        occupancy_blocks=fits.blocks,
        occupancy_percent=fits.percent,
        occupancy_limit=fits.limit,
        widest_global_load_bits=ptx.widest_load_bits,
        widest_global_store_bits=ptx.widest_store_bits,
        tensor_core_instructions=ptx.tensor_core,
        tma_instructions=ptx.tma,
        code_bytes=kernel.code_bytes,
        launches=count,
        refused=refusals(launch_shape(launch, kernel), sm),
    )
