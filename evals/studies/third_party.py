"""Public sets of functions through the offline generator: what is drafted, what refused, whether kernels are right.

python evals/studies/third_party.py --multikernelbench CHECKOUT --npukernelbench CHECKOUT --robust_kbench CHECKOUT \\
    --tritonbench CHECKOUT --gpu_mode CHECKOUT --out evals/results/third_party [--verify] [--only WORD] [--again]

Sets may be left out; without any, what OUT has is counted. `third_party_sets.py` says what each has; npukernelbench
lies in MultiKernelBench. Each file has a process and a time limit of its own. OUT/SET.jsonl gets a line for each
problem: whether it is drafted, its launches, the time that is predicted for an H200 and the floor of what it has to
move, or the operations in the way. A function that changes an argument is refused, as kernels must not; `copies` says
that it is drafted when it is given copies of its arguments.
`--verify` runs the first configuration of each kernel on the emulated GPU and compares (`fuzz/comparison.py`): of a
large problem file at the smaller sizes of `cutesmith/problems/smaller_sizes.py`, or not at all, with that reason. Files
that have lines are passed over. Exit code 1 where a kernel is wrong or the generator failed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)] if str(ROOT) not in sys.path else []

import torch  # noqa: E402

from cutesmith.errors import ContractError, UnmatchedError  # noqa: E402
from cutesmith.patterns.chains.chain import ChainPlan  # noqa: E402
from cutesmith.patterns.chains.variants import VariantsPlan  # noqa: E402
from cutesmith.patterns.contraction.proposals import BYTES_PER_SECOND  # noqa: E402
from cutesmith.patterns.cutting.machine import H200  # noqa: E402
from cutesmith.patterns.generation.planning import plan_problem  # noqa: E402
from cutesmith.patterns.match import plan_kernel  # noqa: E402
from cutesmith.patterns.tracing.trace import drawn, trace_function  # noqa: E402
from cutesmith.patterns.writing.calling import called_as  # noqa: E402
from cutesmith.problems.smaller_sizes import WHOLE, smaller_sources  # noqa: E402
from cutesmith.recording.facade import cuda_as_cpu  # noqa: E402
from evals.studies.fuzz.checks import ARCH, FAILED, HELD, REFUSED, WRONG, results_of, told  # noqa: E402
from evals.studies.fuzz.comparison import EPSILON, differences  # noqa: E402
from evals.studies.third_party_sets import SETS, Problem, as_they_are  # noqa: E402

DRAFTED, COPIES, UNUSABLE, LEFT_OUT = "drafted", "copies", "unusable", "left out"
MOST_BYTES, MOST_FLOPS = 8 << 20, 200_000_000
"""Of a problem whose kernel runs on the emulated GPU."""
CHANGES = "in place"
"""What the refusal of a function says that changes an argument."""


@dataclass(frozen=True)
class Line:
    """What became of a problem. `unusable`: PyTorch itself does not take it here."""

    problem: str
    status: str  # drafted, copies, refused, failed, unusable
    reason: str = ""
    launches: tuple[str, ...] = ()
    predicted_us: float = 0.0
    floor_us: float = 0.0
    seconds: float = 0.0
    verified: str = ""  # held, wrong, failed, left out
    why: str = ""
    sizes: str = WHOLE
    file: str = ""
    commit: str = ""


def plan_of(problem: Problem) -> Any:
    """As `generate` plans it."""
    if problem.file is not None and not problem.copied:
        return plan_problem(problem.file, ARCH)
    inputs = drawn(problem.inputs)
    with cuda_as_cpu(fake=True):
        return plan_kernel(trace_function(problem.function, inputs), ARCH)


def of_copies(problem: Problem) -> Problem:
    """The same function, of copies of its tensors."""

    def function(*inputs: Any) -> Any:
        return problem.function(*(v.clone() if isinstance(v, torch.Tensor) else v for v in inputs))

    return replace(problem, function=function, copied=True)


def drafted(problem: Problem, *, copied: bool = False) -> tuple[Line, Any, Problem]:
    """Its line; where it is drafted, the plan and what it is a plan of."""
    began = time.monotonic()
    line = Line(problem.name, REFUSED)
    try:
        plan = plan_of(problem)
    except UnmatchedError as refusal:
        reason = refusal.message
        if CHANGES in refusal.message and not copied:
            found, plan, problem = drafted(of_copies(problem), copied=True)
            return replace(found, status=COPIES if plan else REFUSED, reason=reason), plan, problem
        return replace(line, reason=reason), None, problem
    except ContractError as refusal:
        return replace(line, reason=refusal.message), None, problem
    except Exception as error:  # noqa: BLE001 - a fault of the generator: its class is the finding
        return replace(line, status=FAILED, reason=told(error)), None, problem
    single = plan.first if isinstance(plan, VariantsPlan) else plan
    launches = [each.plan for each in single.launches] if isinstance(single, ChainPlan) else [single]
    line = replace(
        line,
        status=DRAFTED,
        launches=tuple(each.pattern for each in launches),
        predicted_us=round(H200.seconds(single) * 1e6, 2),
        floor_us=round(plan.algorithmic_bytes / BYTES_PER_SECOND * 1e6, 2),
        seconds=round(time.monotonic() - began, 2),
    )
    return line, plan, problem


def verified(line: Line, plan: Any, problem: Problem, folder: Path) -> Line:
    """The line with what its kernel gives on the emulated GPU."""
    try:
        if problem.tried is not None:
            problem = of_copies(problem.tried) if line.status == COPIES else problem.tried
            plan = plan_of(problem)
        elif problem.file is not None and not _is_small(plan):
            way, problem, plan = _smaller(problem, plan, folder)
            line = replace(line, sizes=way)
        if not _is_small(plan):
            size = f"{plan.algorithmic_bytes / 1e6:.3g} MB and {plan.algorithmic_flops / 1e9:.3g} GFLOP"
            return replace(line, verified=LEFT_OUT, why=size)
        with cuda_as_cpu():
            inputs = [_plain(value) for value in problem.inputs()]
        kernel = called_as(plan.render(plan.configurations(ARCH)[0]), plan.graph.call)
        found = results_of(kernel, inputs, folder, "emulator")
        with cuda_as_cpu():
            why = differences(problem.function, inputs, found, _coarsest([*inputs, *found]))
    except Exception as error:  # noqa: BLE001 - the class of whatever the kernel or its execution raised
        return replace(line, verified=FAILED, why=told(error))
    return replace(line, verified=WRONG if why else HELD, why=why)


def _smaller(problem: Problem, plan: Any, folder: Path) -> tuple[str, Problem, Any]:
    """The first smaller sizes at which a problem file is drafted and small; the file itself where there are none."""
    assert problem.file is not None
    for number, (way, source) in enumerate(smaller_sources(problem.file.contract.source)):
        path = folder / f"smaller_{number}.py"
        path.write_text(source, "utf-8")
        try:
            smaller = next(as_they_are(path, folder))
            smaller = of_copies(smaller) if problem.copied else smaller
            plan_of_smaller = plan_of(smaller)
        except Exception:  # noqa: BLE001 - such sizes do not go together
            continue
        if _is_small(plan_of_smaller):
            return way, smaller, plan_of_smaller
    return WHOLE, problem, plan


def _is_small(plan: Any) -> bool:
    return bool(plan.algorithmic_bytes <= MOST_BYTES and plan.algorithmic_flops <= MOST_FLOPS)


def _plain(value: Any) -> Any:
    """A tensor on the CPU of the same values, strides and offset."""
    if not isinstance(value, torch.Tensor):
        return value
    base = value.new_empty(0).set_(value.detach().untyped_storage()).cpu()
    return base.as_strided(value.shape, value.stride(), value.storage_offset())


def _coarsest(values: Sequence[Any]) -> torch.dtype:
    """The floating-point type of the fewest digits among them."""
    types = {value.dtype for value in values if isinstance(value, torch.Tensor)} & EPSILON.keys()
    return max(types, key=EPSILON.__getitem__, default=torch.float32)


def lines_of(path: Path, kind: str, verify: bool, replies: Connection) -> None:
    """Send the lines of a file's problems, as a process of its own."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        try:
            for problem in SETS[kind][1](path, folder):
                line, plan, of = drafted(problem)
                if verify and plan is not None:
                    line = verified(line, plan, of, folder)
                replies.send(line)
        except Exception as error:  # noqa: BLE001 - the file asks for what is not here
            replies.send(Line(f"{path.parent.name}/{path.stem}", UNUSABLE, told(error).replace(f"{folder}/", "")))
    replies.send(None)


def in_a_process(path: Path, kind: str, verify: bool, seconds: float) -> Iterator[Line]:
    """The lines of a file; one of a failure where time is up or the process ends early."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=lines_of, args=(path, kind, verify, theirs))
    process.start()
    theirs.close()
    until = time.monotonic() + seconds
    try:
        while ours.poll(max(0.0, until - time.monotonic())):
            if (line := ours.recv()) is None:
                return
            yield line
        yield Line(f"{path.parent.name}/{path.stem}", FAILED, f"took more than {seconds:g} s")
    except EOFError:
        process.join()
        yield Line(f"{path.parent.name}/{path.stem}", FAILED, f"the process ended with {process.exitcode}")
    finally:
        process.kill()
        process.join()


def read(path: Path) -> list[Line]:
    """The lines of a file of results."""
    return [Line(**json.loads(text)) for text in path.read_text("utf-8").splitlines()] if path.exists() else []


def table(lines: dict[str, list[Line]]) -> Iterator[str]:
    """Counts of each set, then what stands in the way and what is wrong."""
    titles = ("problems", DRAFTED, COPIES, REFUSED, FAILED, UNUSABLE, HELD, WRONG, "failed to run", LEFT_OUT)
    yield f"| set | {' | '.join(titles)} |\n|---|{'--:|' * len(titles)}"
    for kind, found in lines.items():
        by, verdicts = Counter(line.status for line in found), Counter(line.verified for line in found)
        counts = [len(found), *(by[each] for each in (DRAFTED, COPIES, REFUSED, FAILED, UNUSABLE))]
        counts += [verdicts[each] for each in (HELD, WRONG, FAILED, LEFT_OUT)]
        yield f"| {kind} | {' | '.join(map(str, counts))} |"
    for status in (FAILED, REFUSED, COPIES, UNUSABLE):
        yield from _reasons(status, [(_class_of(o.reason), o.problem) for o in _all(lines) if o.status == status])
    for status in (WRONG, FAILED):
        yield from _reasons(
            f"{status} when run", [(_class_of(o.why), o.problem) for o in _all(lines) if o.verified == status]
        )


def _all(lines: dict[str, list[Line]]) -> list[Line]:
    return [line for found in lines.values() for line in found]


def _reasons(title: str, found: Sequence[tuple[str, str]]) -> Iterator[str]:
    if found:
        yield f"\n| {title} | problems | such as |\n|---|--:|---|"
    for reason, count in Counter(reason for reason, _ in found).most_common():
        names = list(dict.fromkeys(name for each, name in found if each == reason))
        yield f"| {reason} | {count} | {', '.join(names[:3])} |"


def _class_of(reason: str) -> str:
    """A reason's first sentence, without places and numbers."""
    line = re.sub(r" at \S+:\d+( \(`.*?`\))?", "", (reason.splitlines() or [""])[0])
    return re.sub(r"-?\d[\d.e+-]*", "#", line).replace("|", "/")[:150]


def commit_of(checkout: Path) -> str:
    """The commit that is checked out, "" where git does not know."""
    told_by = subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True, text=True)
    return told_by.stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask about the problems of the sets that are given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for kind in SETS:
        parser.add_argument(f"--{kind}", type=Path, metavar="CHECKOUT")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--only", default="", metavar="WORD", help="files whose path has the word")
    parser.add_argument("--again", action="store_true", help="also files that have a line")
    parser.add_argument("--time-limit", type=float, default=300.0, metavar="S", help="of a file")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    known = {kind: read(options.out / f"{kind}.jsonl") for kind in SETS}
    for kind, (files, _) in SETS.items():
        checkout = getattr(options, kind)
        commit = commit_of(checkout) if checkout else ""
        for path in files(checkout) if checkout else ():
            name = str(path.relative_to(checkout).with_suffix(""))
            if options.only not in name or (not options.again and any(line.file == name for line in known[kind])):
                continue
            known[kind] = [line for line in known[kind] if line.file != name]
            for line in in_a_process(path, kind, options.verify, options.time_limit):
                print(kind, line.problem, line.status, line.verified, (line.why or line.reason)[:150], flush=True)
                known[kind].append(replace(line, file=name, commit=commit))
            lines = sorted(known[kind], key=lambda line: (line.file, line.problem))
            text = "".join(json.dumps(asdict(line)) + "\n" for line in lines)
            (options.out / f"{kind}.jsonl").write_text(text, "utf-8")
    print("\n".join(table({kind: lines for kind, lines in known.items() if lines})))
    return int(any(FAILED in (o.status, o.verified) or o.verified == WRONG for o in _all(known)))


if __name__ == "__main__":
    sys.exit(main())
