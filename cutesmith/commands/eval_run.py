"""`cutesmith eval run`: a suite's tasks, kernels for them, and the judge's word on each."""

from __future__ import annotations

import asyncio
import functools
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cutesmith.commands._run import INTERRUPTED, command, command_parser, free_folder, report
from cutesmith.devices import current_device, parse_arch
from cutesmith.errors import UnavailableError, UsageError
from cutesmith.evals.engines.gpus import choose_gpus
from cutesmith.evals.engines.jobs import SESSION, Engine
from cutesmith.evals.engines.local_engine import LocalEngine, usual_slots
from cutesmith.evals.keys import this_machine
from cutesmith.evals.records import Suite
from cutesmith.evals.running.cache import DEFAULT_CACHE, Cache
from cutesmith.evals.running.folder import RunFolder
from cutesmith.evals.running.plan import Plan
from cutesmith.evals.running.running import run_plan
from cutesmith.evals.running.screen import open_screen
from cutesmith.evals.running.sources import AGENTS, MODELS, parse_source
from cutesmith.evals.running.summary import EvalVerdict, lines
from cutesmith.evals.settings import JudgeSettings, MakerSettings
from cutesmith.evals.suites import SUITE_NAMES, TOLERANCES, load_suite
from cutesmith.patterns.generation.target import PLACES, Target, choose_target
from cutesmith.verbs.definition import positive

NONE = "none"
DESCRIPTION = """\
Judge kernels for every task of a suite: lint, compile, verify, benchmark, one line of results.jsonl each.

--agent says where the kernels come from:
  draft          the offline generator
  claude         a session with Claude for each task (ANTHROPIC_API_KEY); options for it after --
  script:FILE, replay:DIR     sessions with a script or a recording; {task} stands for the task's id
  dir:PATH       kernels that somebody else made: PATH/TASK.py or PATH/TASK/kernel.py; samples from 0:
                 PATH/TASK/K.py or PATH/TASK/K/kernel.py; TASK is the id (level1/softmax) or its last part (softmax).
                 No file: status "missing", which counts as not solved.

A session has the whole skill, or with --bare none of its texts, or with --without-page not that page of its
references: make a run of each kind, and `cutesmith eval compare` pairs them.

The folder given by --out may be killed at any moment: --resume goes on, repeats nothing that was finished and loses
nothing. Without --suite it resumes as the run was begun. An outcome that is known of the same kernel, task, settings,
versions and device is taken from the cache and marked.

--time-limit ends what is being judged then: those attempts have no line, and --resume judges them.

The exit code is 0 when every attempt has its line, whatever the kernels are worth; 6 when --time-limit came first,
7 when some could not be judged (a GPU that went away), 130 after Ctrl-C."""

EXAMPLES = (
    "cutesmith eval run --suite core --agent draft --out RUN",
    "cutesmith eval run --suite core --only 'level2/*norm*' --agent draft --quick",
    "cutesmith eval run --suite kernelbench --path KernelBench --level 1 --ids 19 23 --agent dir:kernels --out RUN",
    "cutesmith eval run --suite kernelbench --path KernelBench --level 1 --agent draft --reduced --on emulator",
    "cutesmith eval run --suite core --agent dir:kernels --samples 4 --gpus 0,1 --out RUN",
    "cutesmith eval run --suite core --agent claude --samples 3 --out RUN -- --max-dollars 1 --max-turns 20",
    "cutesmith eval run --suite core --agent claude --samples 3 --bare --out BARE -- --max-dollars 1 --max-turns 20",
    "cutesmith eval run --suite core --agent draft --engine ray --address auto --out RUN",
    "cutesmith eval run --resume --out RUN",
)


@command
def main(argv: list[str]) -> int:
    """Run the command; returns its exit code."""
    own, session = _split_options(argv)
    options = _parser().parse_args(own)
    if options.resume:
        if not options.out:
            raise UsageError("--resume needs --out: the folder of the run")
        known = RunFolder(Path(options.out)).description()
        if known is None:
            raise UsageError(f"{options.out} holds no run", hint="Leave --resume out to begin one there.")
        before, before_session = _split_options(known.command)  # what is given now stands behind it
        own, session = [*before, *own], session or before_session
        options = _parser().parse_args(own)
    verdict, interrupted = _run(options, session, _repeatable(options, own, session))
    code = report(verdict, as_json=options.json, lines=lines(verdict))
    return INTERRUPTED if interrupted else code


def _split_options(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our options, and those after -- for a session."""
    words = list(argv)
    where = words.index("--") if "--" in words else len(words)
    return words[:where], words[where + 1 :]


def _parser() -> Any:
    parser = command_parser("eval run", DESCRIPTION, examples=EXAMPLES)
    what = parser.add_argument_group("what")
    _add_task_options(what)
    what.add_argument("--agent", default="draft", metavar="WHO", help=f"{AGENTS} (default: draft)")
    what.add_argument("--samples", type=positive, default=1, metavar="K", help="kernels for each task (default: 1)")
    what.add_argument(
        "--configurations", type=positive, default=8, metavar="N", help="draft: how many to try, 1 without a race (8)"
    )
    skill = parser.add_argument_group("how much of the skill a session with a model has")
    skill.add_argument("--bare", action="store_true", help="none: the contract, the judge and its tools alone")
    skill.add_argument(
        "--without-page", action="append", default=[], metavar="PAGE", help="not this reference page; repeatable"
    )
    _add_judge_options(parser.add_argument_group("how they are judged"))
    where = parser.add_argument_group("where and how long")
    where.add_argument("--out", metavar="DIR", help="the run's folder (default: cutesmith-out/eval-SUITE-AGENT)")
    where.add_argument("--resume", action="store_true", help="go on with the run in --out")
    where.add_argument("--engine", choices=("local", "ray"), default="local", help="this machine, or a Ray cluster")
    where.add_argument("--address", default="auto", metavar="HOST:PORT", help="of the Ray cluster (auto: this node's)")
    where.add_argument("--gpus", default="all", metavar="0,1|all|N", help="which GPUs, or how many (default: all)")
    where.add_argument("--jobs", type=positive, metavar="N", help="kernels at a time (default: 3/4 of the cores)")
    where.add_argument("--judges", type=positive, metavar="N", help="judges a GPU, one of them times (up to 8)")
    where.add_argument("--time-limit", type=_seconds, default=float("inf"), metavar="S", help="end after S s")
    where.add_argument("--cache", metavar="DIR", help=f"outcomes of earlier runs (default: {DEFAULT_CACHE})")
    where.add_argument("--no-cache", action="store_true", help="judge everything again")
    where.add_argument("--quiet", action="store_true", help="say nothing on the way")
    return parser


def _add_task_options(group: Any) -> None:
    names = f"{', '.join(SUITE_NAMES)}, or a folder of problem files (core)"
    group.add_argument("--suite", default="core", metavar="NAME|DIR", help=names)
    group.add_argument("--path", metavar="DIR", help="where the suite's own files are (kernelbench: a checkout)")
    group.add_argument("--level", action="append", type=int, metavar="N", help="only tasks of this level; repeatable")
    group.add_argument("--tag", action="append", metavar="TAG", help="only tasks that have it; repeatable: all of them")
    smaller = "copies with smaller numbers at module scope, as far as the audit accepts them"
    group.add_argument("--reduced", action="store_true", help=smaller)
    only = "only these: an id, its end, KernelBench's number, or a glob; repeatable"
    group.add_argument("--only", "--ids", action="extend", nargs="+", metavar="GLOB", help=only)


def _add_judge_options(group: Any) -> None:
    group.add_argument("--on", choices=PLACES, default="auto", help="the GPU, the emulated one, or compile only")
    group.add_argument("--arch", metavar="SM", help="architecture (default: the GPU's; sm_90a without one)")
    group.add_argument("--tolerance", choices=TOLERANCES, default="", help="instead of the tasks' own")
    group.add_argument("--rounds", type=positive, metavar="N", help="interleaved rounds of a benchmark")
    group.add_argument("--quick", action="store_true", help="fewer rounds, eager alone as the baseline")
    libraries = f"baselines: files as evals/libraries has them (default: those of our suites), or {NONE}"
    group.add_argument("--libraries", metavar="DIR", help=libraries)
    group.add_argument("--no-benchmark", action="store_true", help="verify only")
    group.add_argument(
        "--timeout", type=_seconds, default=120.0, metavar="S", help="seconds a call of a kernel, as verify (120)"
    )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value >= 0:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def _run(options: Namespace, session: Sequence[str], command: Sequence[str]) -> tuple[EvalVerdict, bool]:
    plan, make_engine = _prepared(options, session)
    out = _folder(options, plan)
    engine = make_engine()
    cache = Cache(None if options.no_cache else Path(options.cache or DEFAULT_CACHE).expanduser())
    try:
        screen = open_screen(quiet=options.quiet, gpus=plan.gpus)
        verdict = run_plan(plan, out, engine, cache, screen, resume=options.resume, command=command)
    finally:
        engine.close()
    return verdict, verdict.interrupted


def _prepared(options: Namespace, session: Sequence[str]) -> tuple[Plan, Callable[[], Engine]]:
    if options.engine == "ray":
        from cutesmith.commands._on_ray import prepared_on_ray

        make_plan = functools.partial(_plan, options, session)
        return prepared_on_ray(options, make_plan, functools.partial(_folder, options))
    target = choose_target(options.arch, options.on)
    gpus = choose_gpus(options.gpus) if target.executes else ()
    if target.executes and not gpus:
        raise UnavailableError("CUDA_VISIBLE_DEVICES leaves no GPU", hint="Use --on emulator.")
    slots = usual_slots(gpus, options.jobs)
    if options.judges:
        slots = replace(slots, judges=options.judges)
    return _plan(options, session, target, len(gpus)), lambda: LocalEngine(slots)


def _folder(options: Namespace, plan: Plan) -> Path:
    return Path(options.out) if options.out else free_folder(f"eval-{plan.suite.name}-{plan.source.kind}")


def _repeatable(options: Namespace, own: Sequence[str], session: Sequence[str]) -> list[str]:
    """The command line as run.json keeps it: good from any folder, without --resume and what only shows."""
    kept = [word for word in own if word not in ("--resume", "--json", "--quiet")]
    if Path(options.suite).exists():
        kept += ["--suite", str(Path(options.suite).absolute())]
    if options.path:
        kept += ["--path", str(Path(options.path).absolute())]
    if options.libraries not in (None, NONE):
        kept += ["--libraries", str(Path(options.libraries).absolute())]
    source = parse_source(options.agent)
    kept += ["--agent", f"{source.kind}:{source.place}"] if source.place else []
    return [*kept, *(["--", *session] if session else [])]


def _plan(options: Namespace, session: Sequence[str], target: Target, gpus: int) -> Plan:
    source = parse_source(options.agent)
    judge = _judge(options, target)
    maker = MakerSettings(
        agent=options.agent if source.kind != "dir" else source.name,
        configurations=options.configurations,
        race_cache=not options.no_cache,
        options=tuple(session),
    )
    arm = [*(["--bare"] if options.bare else []), *(f"--without-page={page}" for page in options.without_page)]
    if source.stage == SESSION:
        maker = _with_session(maker, [*session, *arm])
    elif session or arm:
        given = " ".join([*arm, *session])
        raise UsageError(f"{given}: only a session with a model takes options", hint="Leave them out.")
    return Plan(
        suite=_suite(options, target),
        source=source,
        maker=maker,
        judge=judge,
        machine=this_machine(judge.on),
        samples=options.samples,
        tolerance=options.tolerance,
        seconds=options.time_limit,
        reduced=options.reduced,
        gpus=gpus,
    )


def _judge(options: Namespace, target: Target) -> JudgeSettings:
    place = "gpu" if target.executes else options.on
    if place == "auto" and current_device() is not None:
        place = "emulator"  # the GPU that is here is of another architecture: verify must not choose it
    judge = JudgeSettings(on=place, arch=target.arch, benchmark=not options.no_benchmark, timeout=options.timeout)
    judge = judge.quick() if options.quick else judge
    if options.libraries is not None:
        judge = replace(judge, library_baselines=options.libraries != NONE)
    return replace(judge, rounds=options.rounds) if options.rounds else judge


def _with_session(maker: MakerSettings, words: Sequence[str]) -> MakerSettings:
    """The part of the skill that these options of a session ask for.

    Before the first task: options that a session does not take, a missing key and an unknown model are errors here.
    """
    from cutesmith.agent.settings import Settings
    from cutesmith.commands._agent import make_model
    from cutesmith.commands._agent_options import settings_of
    from cutesmith.commands.generate import generate_parser

    options = generate_parser().parse_args(["problem.py", f"--agent={maker.agent}", *words])
    settings = settings_of(options, Settings())
    if maker.agent.partition(":")[0] in MODELS:
        asyncio.run(make_model(settings).ready())
    return replace(maker, skill=settings.skill, hidden_pages=settings.hidden_pages)


def _suite(options: Namespace, target: Target) -> Suite:
    """The tasks that were asked for; those that are for other architectures are left out."""
    suite = load_suite(
        options.suite,
        path=options.path,
        ids=options.only or (),
        levels=options.level or (),
        tags=options.tag or (),
        libraries=None if options.libraries == NONE else options.libraries,
    )
    sm = parse_arch(target.arch).sm
    tasks = tuple(t for t in suite.tasks if not t.archs or sm in [parse_arch(arch).sm for arch in t.archs])
    if not tasks:
        raise UsageError(f"no task of {suite.name} is for {target.arch}", hint="Give another --arch.")
    if left_out := len(suite.tasks) - len(tasks):
        print(f"{left_out} tasks of {suite.name} are not for {target.arch} and left out", file=sys.stderr)
    return replace(suite, tasks=tasks)
