"""A recording session around host code: tensors, compiler and calls of the CUDA runtime are replaced until it ends."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cutesmith.devices import parse_arch
from cutesmith.recording.autograd import backward_within
from cutesmith.recording.compiler_hooks import hook_compiler
from cutesmith.recording.cuda_graphs import graphs_within
from cutesmith.recording.facade import cuda_as_cpu
from cutesmith.recording.host_calls import set_recorder
from cutesmith.recording.patches import Patches
from cutesmith.recording.sessions import Executor, Session


@contextmanager
def session(
    arch: str,
    *,
    fake: bool = False,
    executor: Executor | None = None,
    line_info: bool = False,
    share: tuple[int, int] | None = None,
) -> Iterator[Session]:
    """Within it, code written for a GPU runs unchanged: compiled for `arch`, launches recorded, nothing executed.

    Torch's CUDA tensors are CPU tensors, or with `fake` tensors without storage (recording.facade). An `executor`
    executes launches after all; `line_info` puts the lines of the Python source into PTX; with a `share` only
    these calls of `cute.compile` are made. Sessions do not nest. A function that was compiled in a session fails with
    cudaErrorNoDevice when it is called outside of one. Raises UsageError for an unknown architecture.
    """
    target = parse_arch(arch)
    recorded = Session(arch=str(target), executor=executor, line_info=line_info, share=share)
    before = set_recorder(recorded)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="cutesmith-") as scratch,
            cuda_as_cpu(fake=fake, arch=str(target)) as facade,
            hook_compiler(recorded, Path(scratch)),
            Patches() as patches,
            warnings.catch_warnings(),
        ):
            backward_within(patches, facade)
            graphs_within(patches, recorded, facade)
            warnings.simplefilter("default")  # the caller's filters must not decide whether a kernel compiles
            yield recorded
    finally:
        set_recorder(before)
        recorded.failure = None  # its frames hold the session: nothing of them should wait for the garbage collector
