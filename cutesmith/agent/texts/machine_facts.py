"""What the model is told of the machine: what `cutesmith doctor` would say, as far as a kernel depends on it."""

from __future__ import annotations

import shutil

from cutesmith.devices import parse_arch
from cutesmith.judge.sanitizer import find_sanitizer
from cutesmith.patterns.generation.target import Target, describe_environment


def machine_facts(target: Target) -> dict[str, str]:
    """Name -> words: versions and GPU, the multiprocessor that is compiled for, the tools that are installed."""
    sm = parse_arch(target.arch).sm
    clusters = f"clusters of up to {sm.max_cluster} blocks" if sm.max_cluster > 1 else "no clusters"
    ncu = "Nsight Compute" if target.executes and shutil.which("ncu") else "no Nsight Compute: profiles are counts"
    return {
        **describe_environment(target),
        "compiled for": f"SM{sm.number}, {sm.family} ({', '.join(sm.products)}); a GPU of it has "
        f"{sm.multiprocessors} SMs and {sm.l2_bytes >> 20} MB of L2, more or less by product",
        "a block has at most": f"{sm.smem_per_block >> 10} KB of shared memory (of {sm.smem_per_sm >> 10} KB an SM)"
        f"; an SM has {sm.registers_per_sm} registers, {sm.threads_per_sm} threads, {sm.blocks_per_sm} blocks",
        "tensor cores and copies": ", ".join([*sm.tensor_cores, "TMA" if sm.tma else "no TMA", clusters]),
        "tools": f"{ncu}; {'' if has_sanitizer(target) else 'no '}compute-sanitizer",
    }


def has_sanitizer(target: Target) -> bool:
    """Whether compute-sanitizer can look at kernels here: it needs the GPU."""
    return target.executes and find_sanitizer() is not None
