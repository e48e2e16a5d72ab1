"""`cutesmith generate`: a kernel for a PyTorch function, by patterns alone or with a model that goes on from there."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cutesmith.commands._agent_options import add_options, wants_agent
from cutesmith.commands._progress import progress_display
from cutesmith.commands._run import command, report, verb_parser
from cutesmith.errors import UnavailableError, UsageError
from cutesmith.problems.sources import KernelRequest, resolve
from cutesmith.verbs.generate_verb import GENERATE, MOST_TRIED
from cutesmith.verdicts import GenerateVerdict, Precision

DESCRIPTION = """\
Write CuTe DSL kernels for a PyTorch function: trace it and match its operations with patterns: products of matrices,
convolutions, attention, pointwise functions, reductions over any dimensions, windows (pooling, interpolation), scans,
scatters, selection (sorts, top-k) and movement of elements. A function that no pattern takes whole is cut into several
launches of one file. Render the configurations, lint, compile, verify and time them, and keep the best verified one.
With --agent claude a model goes on from there, or begins from a sentence: it reads the references, edits, is judged.

A problem file defines reference_fn(*inputs) and get_inputs(), or is a KernelBench file (Model, get_inputs,
get_init_inputs). file.py:name takes a function or a module out of any file, with its get_inputs or with --input.
With no GPU a kernel is verified on the emulated one (status "verified on the emulated GPU"), and not timed. This takes
half a minute for simple functions and minutes for products and attention: candidates are compiled and verified one
after another, up to four of them, until one holds or two fail in the same way; the others are drafted only. With
--on compile, or where the emulator lacks an instruction, it is compiled only (status "compiled").

The folder given by --out then holds
  kernel.py      the best kernel; standalone, needs torch and nvidia-cutlass-dsl only
  report.html    times, configurations tried, checked cases, the source
  result.json    every verdict and raw sample
  candidates/    all configurations
Earlier versions of kernel.py: `cutesmith checkpoint list OUT/kernel.py`.

A session with a model (--agent) is a folder of its own: problem.py, kernel.py (the best verified one, never the last
edit), transcript.jsonl, DEVLOG.md, checkpoints/, result.json, report.html. It may be killed at any time: --resume DIR
goes on. Claude needs ANTHROPIC_API_KEY; docs/agent.md says how a session works."""

EXAMPLES = (
    "cutesmith generate evals/tasks/level1/softmax.py --out out/softmax",
    "cutesmith generate problem.py --arch sm_100a --on compile   # for a GPU that is not here",
    "cutesmith generate problem.py --no-benchmark --configurations 2 --json",
    "cutesmith generate norms.py:rms_norm --input 'bf16[16384,5120]' --input 'bf16[5120]'",
    'cutesmith generate "fused add + RMSNorm, bf16, 16384x5120, H100" --agent claude --max-dollars 5',
    "cutesmith generate problem.py --agent claude --candidates 4 --beam 2 --target-floor 90",
    "cutesmith generate --resume cutesmith-out/problem-agent --max-dollars 10",
)


@command
def main(argv: list[str]) -> int:
    """Run the command; returns its exit code."""
    options = generate_parser().parse_args(argv)
    try:
        import jinja2  # noqa: F401
    except ImportError as error:
        raise UnavailableError("generate needs jinja2", hint="python3 -m pip install jinja2") from error
    if wants_agent(options):
        from cutesmith.commands._agent import run_agent

        return run_agent(options)
    from cutesmith.patterns.generation.generate import generate_kernel
    from cutesmith.report.generate_page import render_report

    problem, out = _problem_file(options)
    with progress_display(quiet=options.quiet) as progress:
        verdict = generate_kernel(
            problem,
            arch=options.arch,
            out=out,
            on=options.on,
            configurations_limit=options.configurations or MOST_TRIED,
            benchmark=not options.no_benchmark,
            use_cache=not options.no_cache,
            confine_problem=options.confine_problem,
            precision=Precision(options.precision),
            progress=progress,
            render=render_report,
        )
    return report(verdict, as_json=options.json, lines=summary_lines(verdict))


def _problem_file(options: Namespace) -> tuple[Path, Path | None]:
    """The file to generate for and the folder asked for; what is not a problem file yet becomes one in that folder."""
    from cutesmith.checkpoints import write_atomically
    from cutesmith.patterns.generation.output_folder import OutputFolder, default_folder

    if options.problem is None:
        raise UsageError("nothing to generate for", hint="Give a problem file or file.py:name.")
    source = resolve(options.problem, options.input)
    out = Path(options.out) if options.out else None
    if isinstance(source, KernelRequest):
        wrong = f"{source.text!r:.60} is a sentence: only a model can make a problem of it"
        raise UsageError(wrong, hint="Add --agent claude, or give a problem file.")
    if not source.changed:
        return source.path, out
    folder = OutputFolder(out or default_folder(source.name)).path
    write_atomically(folder / "problem.py", source.source.encode())
    return folder / "problem.py", folder


def generate_parser() -> Any:
    """The parser of `cutesmith generate`."""
    parser = verb_parser(GENERATE, DESCRIPTION, examples=EXAMPLES)
    add_options(parser)
    return parser


def summary_lines(verdict: GenerateVerdict) -> Iterator[str]:
    """The verdict for people: one sentence, the configurations tried, and where the files are."""
    from cutesmith.report.generate_page import settings_of, varying_settings

    yield verdict.summary
    varying = varying_settings(map(settings_of, verdict.tried))
    for candidate in verdict.tried:
        mark = "*" if candidate["chosen"] else " "
        median = f"{candidate['median_us']:9.2f} µs" if candidate["median_us"] else " " * 12
        settings = ", ".join(f"{key}={value}" for key, value in settings_of(candidate).items() if key in varying)
        yield f"{mark} {candidate['number']:2d}  {candidate['status']:16s} {median}  {settings}"
    if verdict.kernel:
        yield f"kernel: {verdict.kernel}"
        yield f"report: {Path(verdict.kernel).with_name('report.html')}"
