"""What a worker finds in its environment: an allow-list of the judge's own variables, and folders of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from cutesmith.sandbox.processes import ProcessTree

_MACHINE = (
    "PATH",
    "LD_LIBRARY_PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "CC",
    "CXX",
    "VIRTUAL_ENV",
    "OMP_NUM_THREADS",
)
_CUDA = ("CUDA_HOME", "CUDA_PATH", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")
_COMPILERS = ("TRITON_PTXAS_PATH", "TORCHINDUCTOR_COMPILE_THREADS", "CUTE_DSL_LIBS")
_MULTICAST = ("NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS")
_CHOSEN = ("CUDA_VISIBLE_DEVICES", "CUTE_DSL_ARCH")  # of each worker; the judge's own where nothing else is asked for
FREE_READS = "CUTESMITH_FREE_READS"  # set to anything: files stay readable, for a machine whose driver needs more

# Names that a compiler, CUDA or the DSL needs; nothing that names a mode, a secret or this project, but `FREE_READS`,
# which `confinement.confine` takes away again.
ALLOWED_VARIABLES = frozenset((*_MACHINE, *_CUDA, *_COMPILERS, *_MULTICAST, *_CHOSEN, FREE_READS))

# What a forked worker takes on after the fork; every other variable must be as it was when the libraries were imported.
_FOLDERS = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "CUTE_DSL_CACHE_DIR")
_CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "QUACK_CACHE_DIR")
PER_WORKER = frozenset((*_FOLDERS, *_CACHES, *_CHOSEN, "PYTHONPATH", "OMP_NUM_THREADS", ProcessTree.MARK))
PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])
FORK_SERVER_ROOM = "FORK_SERVER_ROOM"  # a long variable of the fork server: a worker's environment takes its place


def clean_environment(scratch: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The child's whole environment: the allow-list, its folders, and where to import this package from."""
    kept = {name: value for name, value in os.environ.items() if name in ALLOWED_VARIABLES}
    found = (entry for entry in sys.path if entry and os.path.isdir(entry) and entry != PACKAGE_ROOT)
    return {
        **kept,
        **dict.fromkeys(_FOLDERS, str(scratch)),
        "PYTHONPATH": os.pathsep.join([PACKAGE_ROOT, *found]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        # Threads of OpenMP that wait for one another must not spin: beside other processes 100 float64 softmaxes of 64
        # rows of 4096 took 21 s with 2 threads that did, and 1.3 s with 2 that slept.
        "OMP_WAIT_POLICY": "passive",
        **(extra or {}),
    }
