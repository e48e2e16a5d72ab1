"""What a worker finds in its environment: an allow-list of the judge's own variables, and folders of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from cutesmith.sandbox.processes import ProcessTree

# Names that a compiler, CUDA or the DSL needs; nothing that names a mode, a secret or this project.
ALLOWED_VARIABLES = frozenset(
    {
        *("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "CC", "CXX", "VIRTUAL_ENV", "OMP_NUM_THREADS"),
        *("CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TRITON_PTXAS_PATH"),
        "TORCHINDUCTOR_COMPILE_THREADS",
        *("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "CUTE_DSL_ARCH", "CUTE_DSL_LIBS"),
        *("NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS"),
        "CUTESMITH_FREE_READS",  # `confinement.confine` takes it away again
    }
)

# What a forked worker takes on after the fork; every other variable must be as it was when the libraries were imported.
PER_WORKER = frozenset(
    {
        *("HOME", "TMPDIR", "XDG_CACHE_HOME", "PYTHONPATH", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"),
        *("CUTE_DSL_ARCH", "CUTE_DSL_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "QUACK_CACHE_DIR"),
        ProcessTree.MARK,
    }
)
PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])
FORK_SERVER_ROOM = "FORK_SERVER_ROOM"  # a long variable of the fork server: a worker's environment takes its place


def clean_environment(scratch: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The child's whole environment: the allow-list, its folders, and where to import this package from."""
    kept = {name: value for name, value in os.environ.items() if name in ALLOWED_VARIABLES}
    found = (entry for entry in sys.path if entry and os.path.isdir(entry) and entry != PACKAGE_ROOT)
    folders = {name: str(scratch) for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "CUTE_DSL_CACHE_DIR")}
    python = {
        "PYTHONPATH": os.pathsep.join([PACKAGE_ROOT, *found]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
    }
    # Threads of OpenMP that wait for one another must not spin: beside other processes 100 float64 softmaxes of 64 rows
    # of 4096 took 21 s with 2 threads that did, and 1.3 s with 2 that slept.
    python["OMP_WAIT_POLICY"] = "passive"
    return {**kept, **folders, **python, **(extra or {})}
