"""The fuzz of the generator as a command: processes that die or hang cost their seed alone, and a run goes on."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import asdict

import pytest

from evals.studies.fuzz.checks import Outcome
from evals.studies.fuzz_generator import Worker, counted, main, read_results


def test_a_file_of_results_is_counted_by_classes_and_a_cut_line_left_out(tmp_path, capsys):
    lines = [Outcome(1, "held", families=("scans",)), Outcome(2, "wrong", "value: 3 of 8, such as 0.5 nan 1e-7 (ours)")]
    lines += [Outcome(3, "wrong", "value: 1 of 9, such as -2.25 3 1.5 (ours)"), Outcome(4, "refused", "aten.x: no")]
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps(asdict(line)) + "\n" for line in lines) + '{"seed": 5, "sta')
    assert [outcome.seed for outcome in read_results(path)] == [1, 2, 3, 4]
    said = list(counted(read_results(path)))
    assert said[0] == "2 wrong (50.0 %), 1 held (25.0 %), 1 refused (25.0 %)" and "  scans: 1 held" in said
    assert sum(line.startswith("wrong 2:") for line in said) == 1
    assert main(["--count", str(path)]) == 1 and "refused 1: aten.x: no (such as seed 4)" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_process_that_dies_costs_one_seed_and_a_resumed_run_passes_over_what_it_has(tmp_path):
    worker = Worker("emulator")
    try:
        first = worker.ask(3, time.monotonic() + 120)
        os.kill(worker.process.pid, signal.SIGKILL)
        worker.process.wait()
        assert worker.ask(4, time.monotonic() + 120).seed == 4  # a new process
        worker.process.stdin.close()
        lost = worker.ask(5, time.monotonic() + 120)
        assert (lost.seed, lost.status) == (5, "failed") and "the process ended" in lost.reason
        assert worker.ask(6, time.monotonic()) is None  # no time is left
    finally:
        worker.close()
    out = tmp_path / "results.jsonl"
    out.write_text(json.dumps(asdict(first)) + "\n")
    assert main(["--seeds", "3", "5", "--out", str(out)]) in (0, 1)
    assert [outcome.seed for outcome in read_results(out)] == [3, 4]
