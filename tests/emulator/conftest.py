"""PTX of real kernels, compiled once a session with line information."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernel_files import kernel_file

HERE = Path(__file__).parent
_OPTIONS = "--generate-line-info --enable-assertions"


@pytest.fixture(scope="session")
def real_ptx() -> dict[str, str]:
    """PTX by name: a copy in clusters and a shared-memory kernel for sm_90a, two more for sm_80."""
    return {
        "copy_cluster": _compile(kernel_file("copy_cluster"), "copy", "sm_90a"),
        "smem_reverse": _compile(kernel_file("smem_reverse"), "reverse", "sm_90a"),
        "relu_tvm_ffi": _compile(kernel_file("relu_tvm_ffi"), "relu", "sm_80"),
        "prints_and_asserts": _compile(HERE / "kernels" / "prints_and_asserts.py", "features", "sm_80", 3),
    }


def _compile(path: Path, function: str, arch: str, *extra: int) -> str:
    import cutlass.cute as cute
    import torch
    from cutlass.cute.runtime import from_dlpack

    from cutesmith.problems.loading import load_file
    from cutesmith.recording.open_session import session

    with session(arch, fake=True) as recorded:
        file = load_file(path)
        tensors = [from_dlpack(torch.empty(1024, device="cuda"), assumed_align=16) for _ in range(2)]
        cute.compile(getattr(file.module, function), *tensors, *extra, options=_OPTIONS)
    return recorded.modules[-1].ptx
