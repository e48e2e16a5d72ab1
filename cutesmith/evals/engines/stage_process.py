"""`python -m cutesmith.evals.engines.stage_process`: stages of one slot, one after the other, until stdin ends.

Requests and replies are frames of `sandbox.child`; stdout carries replies alone, whatever a library prints
goes to stderr. When it is asked to end, or its parent ends, it takes its workers and their folders with it.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from typing import NoReturn

from cutesmith.evals.engines.jobs import JOB, Job
from cutesmith.evals.engines.stages import run_stage
from cutesmith.judge.kept_references import KeptReference, keeping_references
from cutesmith.sandbox.child import read_frame, write_frame
from cutesmith.sandbox.confinement import die_with_parent, hide_memory

IDLE_SECONDS = 20.0  # a context of a GPU takes half a GiB of it, and a quarter of a second at least to make


def main() -> int:
    """Serve; returns 0 once the parent closed its end."""
    signal.signal(signal.SIGTERM, _end)
    die_with_parent(signal.SIGTERM)
    hide_memory()
    replies = os.dup(1)
    os.dup2(2, 1)
    with keeping_references() as kept:
        while (job := next_job(0, kept)) is not None:
            write_frame(replies, run_stage(job).model_dump(mode="json", exclude_unset=True))
    return 0


def next_job(descriptor: int, kept: KeptReference, patience: float = IDLE_SECONDS) -> Job | None:
    """The next job, None at the end. A slot without work gives back the GPU memory of the process that it keeps."""
    if not select.select([descriptor], [], [], patience)[0]:
        kept.close()
    frame = read_frame(descriptor)
    return None if frame is None else JOB.validate_python(frame)


def _end(number: int, frame: object) -> NoReturn:
    """Unwind: every `with` on the way ends its workers and removes its folder, in memory or on disk."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would end the clearing up
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
