#!/usr/bin/env python3
"""Turn what was recorded before `cutesmith eval run` existed into folders of runs, for `cutesmith eval report`.

    python evals/studies/import_results.py --out /tmp/runs
    cutesmith eval report /tmp/runs/timed --out report.html

OUT/timed: the 20 tasks of evals/results/h200/tasks/benchmarked.jsonl with their raw samples; OUT/verified: the 97 of
verified.jsonl, checked and not timed; OUT/sessions: the four scripted sessions with kernels and transcripts. Nothing is
measured here, and nothing is filled in: what the records do not say stays empty.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from cutesmith.agent.outcome import judgements  # noqa: E402
from cutesmith.evals.records import KERNEL, Attempt, Cost, Machine, Timing  # noqa: E402

RECORDED = ROOT / "evals" / "results" / "h200"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the three runs; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder for the runs")
    out: Path = parser.parse_args(argv).out
    for name in ("timed", "verified", "sessions"):
        (out / name).mkdir(parents=True, exist_ok=True)
    write_results(out / "timed", timed(lines_of("benchmarked"), out / "timed"))
    write_results(out / "verified", verified(lines_of("verified"), out / "verified"))
    write_results(out / "sessions", sessions(RECORDED / "agent_sessions", out / "sessions"))
    print(f"cutesmith eval report {out}/timed {out}/verified {out}/sessions")
    return 0


def lines_of(name: str) -> Iterator[dict[str, Any]]:
    """Records of evals/results/h200/tasks/NAME.jsonl."""
    with (RECORDED / "tasks" / f"{name}.jsonl").open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def write_results(folder: Path, attempts: Iterable[Attempt]) -> None:
    """results.jsonl of a run."""
    text = "".join(attempt.model_dump_json() + "\n" for attempt in attempts)
    (folder / "results.jsonl").write_text(text, encoding="utf-8")


def timed(records: Iterable[Mapping[str, Any]], folder: Path) -> Iterator[Attempt]:
    """Attempts of the generator's results, with the verdicts of their stages."""
    for record in records:
        stages = {stage["stage"]: stage for stage in record["stages"]}
        failed = {"generate": {key: record[key] for key in ("status", "exit_code", "summary", "seconds", "pattern")}}
        tried = record["tried"][0] if record["tried"] and not stages else {}
        failed |= {name: tried[name] for name in ("lint", "compile", "verify") if tried.get(name)}
        yield attempt_of(record, stages or failed, folder, machine=machine_of(record["environment"]))


def verified(records: Iterable[Mapping[str, Any]], folder: Path) -> Iterator[Attempt]:
    """Attempts that were checked on the GPU and not timed."""
    for record in records:
        machine = Machine(device=record["verify"]["device"])
        yield attempt_of(record, {"verify": record["verify"]}, folder, machine=machine)


def sessions(recorded: Path, folder: Path) -> Iterator[Attempt]:
    """The scripted sessions: what was delivered, its last verdicts, kernel and transcript."""
    for session in sorted(path.parent for path in recorded.glob("*/result.json")):
        result = json.loads((session / "result.json").read_text(encoding="utf-8"))
        events = [json.loads(line) for line in (session / "transcript.jsonl").read_text(encoding="utf-8").splitlines()]
        kept = folder / "kernels" / session.name / "0"
        shutil.copytree(session, kept, dirs_exist_ok=True)
        judged = [effect for event in events for effect in judgements(event)]
        delivered = [effect for effect in judged if effect.sha256 == result["sha256"]]
        stages = {effect.verdict["stage"]: effect.verdict for effect in delivered or judged}
        yield attempt_of(
            {**result, "task": session.name},
            stages,
            folder,
            source="scripted session",
            kernel=f"kernels/{session.name}/0/kernel.py" if (kept / "kernel.py").is_file() else "",
            transcript=f"kernels/{session.name}/0/transcript.jsonl",
            machine=machine_of(events[0].get("environment") or {}),
            cost=Cost(dollars=result["dollars"], turns=result["turns"]),
            finished=events[-1]["time"],
        )


def attempt_of(record: Mapping[str, Any], stages: Mapping[str, Any], folder: Path, **known: Any) -> Attempt:
    """One attempt, its stages' verdicts written below the run's folder."""
    verify, benchmark = stages.get("verify") or {}, stages.get("benchmark") or {}
    key = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:32]
    (folder / "verdicts").mkdir(exist_ok=True)
    (folder / "verdicts" / f"{key}.json").write_text(json.dumps(stages), encoding="utf-8")
    last = list(stages)[-1] if record.get("exit_code") else ("benchmark" if benchmark else "verify")
    level, tags = described(record["task"])
    inputs = benchmark.get("inputs") or (verify.get("cases") or [{}])[0].get("inputs", "")
    known = {"source": "draft", "verdicts": f"verdicts/{key}.json", **known}
    return Attempt(
        **known,
        key=key,
        suite="recorded",
        task=record["task"],
        level=level,
        tags=tags,
        dtypes=tuple(dict.fromkeys(re.findall(r"([a-z]+\d+\w*|bool)\[", inputs))),
        stage=last,
        exit_code=record.get("exit_code") or 0,
        status=record["status"],
        rule=verify.get("rule") or "",
        summary=record["summary"],
        correct=record["status"] == "verified",
        ran_on=verify.get("ran_on") or "",
        timings=timings_of(benchmark.get("timings") or ()),
        floor_us=benchmark.get("floor_us"),
        floor_kind=benchmark.get("floor_kind") or "",
        flops=benchmark.get("algorithmic_flops"),
        bytes=benchmark.get("algorithmic_bytes"),
        seconds={name: stage["seconds"] for name, stage in stages.items() if stage.get("seconds")},
    )


def timings_of(timings: Sequence[Mapping[str, Any]]) -> dict[str, Timing]:
    """A benchmark's timings by name, the candidate's first."""
    names = [KERNEL, *(timing["name"] for timing in timings[1:])]
    fields = ("samples_us", "median_us", "host_us", "error")
    return {name: Timing(**{key: timing[key] for key in fields}) for name, timing in zip(names, timings)}


def machine_of(environment: Mapping[str, str]) -> Machine:
    """The machine as the records name it."""
    names = {
        "device": "GPU",
        "driver": "driver",
        "dsl": "nvidia-cutlass-dsl",
        "torch": "torch",
        "cutesmith": "cutesmith",
    }
    return Machine(**{field: str(environment.get(key, "")) for field, key in names.items()})


def described(task: str) -> tuple[int, tuple[str, ...]]:
    """LEVEL and TAGS of a task file, (0, ()) where there is none."""
    path = ROOT / "evals" / "tasks" / f"{task}.py"
    if not path.is_file():
        return 0, ()
    found = {"LEVEL": 0, "TAGS": ()}
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            if name in found:
                found[name] = ast.literal_eval(statement.value)
    return int(str(found["LEVEL"])), tuple(found["TAGS"])  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main())
