"""Machine code as text (SASS), by NVIDIA's disassembler where it is installed.

A cubin comes from a process that ran somebody's kernel file: the disassembler reads it as confined as that process.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

from cutesmith.sandbox.limits import GIB, Limits
from cutesmith.sandbox.scratch import scratch_folder
from cutesmith.sandbox.watched_program import run_watched

HOW_TO_GET_IT = 'pip install "nvidia-cuda-nvdisasm"'
LIMITS = Limits(call_seconds=60.0, memory_bytes=4 * GIB, file_bytes=GIB, files=10)
_CUBIN, _LISTING = "kernel.cubin", "kernel.sass"
_RUN = f"""\
import os, sys
from pathlib import Path
from cutesmith.sandbox.confinement import confine, limit_resources
limit_resources(file_bytes={LIMITS.file_bytes}, memory_bytes={LIMITS.memory_bytes})
os.dup2(os.open("{_LISTING}", os.O_WRONLY | os.O_CREAT), 1)
confine(readable=[Path(sys.argv[1]).resolve()], programs=True)
os.execv(sys.argv[1], [sys.argv[1], "-c", "{_CUBIN}"])
"""


def disassembler() -> str | None:
    """The path of nvdisasm, of a CUDA toolkit or of NVIDIA's wheel; None where neither is installed."""
    spec = importlib.util.find_spec("nvidia")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    in_wheels = (path for folder in folders for path in Path(folder).glob("*/bin/nvdisasm") if path.is_file())
    return shutil.which("nvdisasm") or next(map(str, in_wheels), None)


def disassembled(cubin: bytes, program: str) -> tuple[bytes, str]:
    """The text of a cubin's machine code, and why there is none ("" where there is)."""
    with scratch_folder() as folder:
        (folder / _CUBIN).write_bytes(cubin)
        finished = run_watched([sys.executable, "-c", _RUN, program], cwd=folder, limits=LIMITS)
        if finished.stopped or finished.code:
            return b"", f"{finished.stopped or finished.output.strip()[-300:]} (exit code {finished.code})"
        return (folder / _LISTING).read_bytes(), ""
