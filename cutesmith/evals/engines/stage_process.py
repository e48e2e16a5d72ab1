"""`python -m cutesmith.evals.engines.stage_process`: stages of one slot, one after the other, until stdin ends.

Requests and replies are frames of `checks.isolation.child`; stdout carries replies alone, whatever a library prints
goes to stderr. When it is asked to end, or its parent ends, it takes its workers and their folders with it.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

from cutesmith.checks.isolation.child import read_frame, write_frame
from cutesmith.checks.isolation.confinement import die_with_parent, hide_memory
from cutesmith.checks.judging.kept_references import keeping_references
from cutesmith.evals.engines.stages import run_stage


def main() -> int:
    """Serve; returns 0 once the parent closed its end."""
    signal.signal(signal.SIGTERM, _end)
    die_with_parent(signal.SIGTERM)
    hide_memory()
    replies = os.dup(1)
    os.dup2(2, 1)
    with keeping_references():
        while (request := read_frame(0)) is not None:
            write_frame(replies, run_stage(request["stage"], request["payload"]))
    return 0


def _end(number: int, frame: object) -> NoReturn:
    """Unwind: every `with` on the way ends its workers and removes its folder, in memory or on disk."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would end the clearing up
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
