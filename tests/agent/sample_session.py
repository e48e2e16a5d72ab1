"""Transcripts of agent sessions as the real types write them: a timed search over three lines of work, one that nothing
was timed in, one full of hostile text, and one that is far too long. Times are made up by hand; nothing was run.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from cutesmith.agent.closing import conclude
from cutesmith.agent.models.model import Usage
from cutesmith.agent.outcome import AddNote, KeepVersion, RecordVerdict, WriteFile
from cutesmith.agent.session_state import SessionState
from cutesmith.patterns.generation.target import Target
from cutesmith.profiling.advice import ProfileAdvice
from cutesmith.profiling.profiling import ProfileVerdict
from cutesmith.verdicts import (
    AgentVerdict,
    ArchReport,
    BenchmarkVerdict,
    CaseOutcome,
    CaseReport,
    CompileVerdict,
    ExitCode,
    Finding,
    KernelReport,
    LintVerdict,
    Mechanism,
    OutputError,
    Timing,
    Verdict,
    VerifyVerdict,
    Violation,
    strict_json,
)
from tests.report.sample import HOSTILE

EMULATED = Target("sm_90a", None, "", emulated=True)

MODEL = "claude-opus-4-8"
REQUEST = "fused add + RMSNorm, bf16, 16384×5120, H100"
START = datetime(2026, 11, 20, 9, 30, tzinfo=timezone.utc)
BYTES = 3 * 16384 * 5120 * 2
FLOOR = 128.4
BASELINES = {"eager": 612.0, "torch.compile": 171.0}
PROBLEM = '''"""Add the residual, then RMSNorm over the last dimension."""

import torch


def reference_fn(x, residual, weight):
    summed = x + residual
    return torch.nn.functional.rms_norm(summed, (summed.shape[-1],), weight, 1e-6), summed


def get_inputs():
    x = torch.randn(16384, 5120, dtype=torch.bfloat16)
    return [x, torch.randn_like(x), torch.ones(5120, dtype=torch.bfloat16)]
'''


def kernel(threads: int, *, vector: int = 8, staged: bool = False, note: str = "") -> str:
    """A kernel's text: what differs between the versions is what the diffs show."""
    load = "cute.autovec_copy(gX, rX)" if vector > 1 else "x = mX[row, column]"
    stage = "    rS = cute.make_rmem_tensor_like(rX)\n    rS.store(rX.load() + rR.load())\n" if staged else ""
    return f'''"""RMSNorm of x + residual, one row a block of {threads} threads.{note}"""

import cutlass
import cutlass.cute as cute

THREADS = {threads}
VECTOR = {vector}  # bfloat16 elements a load


@cute.kernel
def rms_norm_kernel(mX: cute.Tensor, mR: cute.Tensor, mW: cute.Tensor, mY: cute.Tensor, mS: cute.Tensor):
    row, _, _ = cute.arch.block_idx()
    thread, _, _ = cute.arch.thread_idx()
    total = cutlass.Float32(0.0)
    {load}
{stage}    total = cute.arch.warp_reduction_sum(total)
    scale = cute.rsqrt(total / mX.shape[1] + 1e-6)


def kernel_fn(x, residual, weight):
    """RMSNorm of x + residual, and the sum."""
    return launch(x, residual, weight, threads=THREADS)
'''


def kernel_report(threads: int, registers: int) -> KernelReport:
    """A kernel as the compile gate sees it."""
    return KernelReport(
        name="rms_norm_kernel",
        arch="sm_90a",
        registers=registers,
        stack_bytes=0,
        spill_store_bytes=16 if registers > 128 else 0,
        spill_load_bytes=0,
        static_smem_bytes=128,
        dynamic_smem_bytes=0,
        grid=(16384, 1, 1),
        block=(threads, 1, 1),
        cluster=(1, 1, 1),
        occupancy_blocks=4,
        occupancy_percent=62.5,
        occupancy_limit="registers",
        widest_global_load_bits=128,
        widest_global_store_bits=128,
    )


def lint(message: str = "") -> LintVerdict:
    """Nothing found, or one error with this message."""
    if not message:
        return LintVerdict(exit_code=ExitCode.PASSED, summary="nothing found", path="kernel.py", seconds=0.1)
    finding = Finding(rule="K101", severity="error", line=9, column=4, message=message, fix="Use cute.arch.")
    return LintVerdict(
        exit_code=ExitCode.LINT, summary=f"1 error: {message}", path="kernel.py", findings=(finding,), seconds=0.1
    )


def compiled(threads: int, registers: int) -> CompileVerdict:
    """A compile pass for one architecture."""
    arch = ArchReport(
        arch="sm_90a", exit_code=ExitCode.PASSED, compile_seconds=0.6, kernels=(kernel_report(threads, registers),)
    )
    summary = f"compiled for sm_90a: {registers} registers, no spills; nothing was executed"
    return CompileVerdict(exit_code=ExitCode.PASSED, summary=summary, path="kernel.py", archs=(arch,), seconds=2.4)


def not_compiled(message: str) -> CompileVerdict:
    """A compile failure with the DSL's message."""
    code = ExitCode.DOES_NOT_COMPILE
    arch = ArchReport(arch="sm_90a", exit_code=code, compile_seconds=0.3, error=message, error_line=15)
    return CompileVerdict(exit_code=code, summary=f"line 15: {message}", path="kernel.py", archs=(arch,), seconds=1.9)


def verified(*, passed: bool = True, ran_on: str = "gpu", problem: str = "", log: str = "") -> VerifyVerdict:
    """A verify verdict of two cases; the second is wrong unless it passed."""
    error = OutputError(
        output=0,
        dtype="bfloat16",
        shape=(33, 5120),
        max_abs=3.1e-3 if passed else 0.87,
        max_rel=4e-3,
        max_ulp=0.51,
        mismatches=0 if passed else 5120,
        elements=168960,
    )
    problem = problem or "5120 of 168960 elements of output 0 differ, first at [32, 0]: 0.12 in place of 0.99"
    violation = Violation(None, Mechanism.FLOAT64_REFERENCE, problem, reject=False)
    cases = tuple(
        CaseReport(
            name=name,
            inputs="bfloat16[33, 5120]",
            outcome=CaseOutcome.PASSED if wrong is None else CaseOutcome.WRONG_RESULT,
            violation=wrong,
            outputs=(error,),
        )
        for name, wrong in (("get_inputs, seed 1", None), ("set 1: 33 rows", None if passed else violation))
    )
    where = {"gpu": "on NVIDIA H100", "emulator": "on the emulated GPU", "compile": "compiled only"}[ran_on]
    return VerifyVerdict(
        exit_code=ExitCode.PASSED if passed else ExitCode.WRONG_RESULT,
        summary=f"2 cases agree with the float64 reference, {where}" if passed else problem,
        path="kernel.py",
        ran_on=ran_on,
        device="NVIDIA H100" if ran_on == "gpu" else "",
        cases=cases,
        log_tail=log,
        seconds=6.2,
    )


def rejected() -> VerifyVerdict:
    """A verify verdict on a kernel that cheats."""
    summary, cheats = "kernel_fn called aten::rms_norm: the result was not computed by the kernel", ExitCode.REJECTED
    return replace(
        verified(), exit_code=cheats, summary=summary, rule="torch-compute", cases=(), device="", seconds=5.0
    )


def profiled() -> ProfileVerdict:
    """What ncu says of a kernel."""
    advice = ProfileAdvice(
        kind="memory",
        message="Warps wait for loads: have two in flight a thread.",
        metric="long_scoreboard",
        reference="performance.md#latency",
        value=0.62,
        weight=0.3,
        kernel="kernel.py:31",
    )
    return ProfileVerdict(
        exit_code=ExitCode.PASSED, summary="memory-bound, 88 % of DRAM", path="kernel.py", tool="ncu", advice=(advice,)
    )


def timed(median: float) -> BenchmarkVerdict:
    """A benchmark of the candidate and its baselines."""
    spread = [1 + 0.004 * ((index * 7) % 11 - 4) / 4 for index in range(100)]

    def quartiles(value: float) -> dict[str, float]:
        return {"q1_us": 0.998 * value, "q3_us": 1.003 * value, "host_us": 7.1}

    timings = tuple(
        Timing(name=name, samples_us=tuple(value * factor for factor in spread), median_us=value, **quartiles(value))
        for name, value in {"kernel_fn": median, **BASELINES}.items()
    )
    return BenchmarkVerdict(
        exit_code=ExitCode.PASSED,
        summary=f"{median:.1f} µs, {BASELINES['torch.compile'] / median:.2f} times as fast as torch.compile",
        path="kernel.py",
        device="NVIDIA H100",
        inputs="bfloat16[16384, 5120] ×2, bfloat16[5120]",
        timings=timings,
        floor_us=FLOOR,
        floor_kind="bytes",
        floor_percent=100 * FLOOR / median,
        algorithmic_bytes=BYTES,
        algorithmic_flops=5 * 16384 * 5120,
        copy_bytes_per_second=BYTES / (FLOOR * 1e-6),
        speedups={name: value / median for name, value in BASELINES.items()},
        seconds=14.0,
    )


class Session:
    """Events in the order in which a loop would append them."""

    def __init__(self, *, request: str = REQUEST, limits: dict[str, Any] | None = None) -> None:
        self.events: list[dict[str, Any]] = []
        self.turns: dict[int, int] = {}
        self.waiting: list[dict[str, Any]] = []
        self.clock = START
        limits = {"turns": 60, "dollars": 5.0, "seconds": 3600.0, "patience": 8, **(limits or {})}
        settings = {"model": MODEL, "effort": "high", "candidates": 3, "arch": "sm_90a", "limits": limits}
        environment = {"GPU": "NVIDIA H100", "torch": "2.13.0", "nvidia-cutlass-dsl": "4.8.1"}
        self.add("session", request=request, settings=settings, environment=environment)
        self.add("run", pid=4711, resumed=False)

    def add(self, kind: str, *, line: int = 0, seconds: float = 0.5, **fields: Any) -> None:
        """Append one event, `seconds` after the one before."""
        self.clock += timedelta(seconds=seconds)
        time = self.clock.isoformat(timespec="milliseconds")
        if "effects" in fields:
            fields["effects"] = [effect.to_dict() for effect in fields["effects"]]
        event = {"seq": len(self.events), "time": time, "line": line, "kind": kind, **fields}
        self.events.append(json.loads(strict_json(event)))

    def judged(self, line: int, text: str, *verdicts: Verdict) -> None:
        """A judgement that no model asked for."""
        seconds = sum(verdict.seconds for verdict in verdicts)
        self.add("judged", line=line, seconds=seconds, text="The draft was judged.", effects=_effects(text, verdicts))

    def reply(self, line: int, *blocks: dict[str, Any], stop_reason: str = "tool_use", dollars: Any = 0.11) -> None:
        """One reply of the model: a request event and the reply itself."""
        turn = self.turns[line] = self.turns.get(line, 0) + 1
        self.add("request", line=line, turn=turn)
        self.waiting = [block for block in blocks if block["type"] == "tool_use"]
        usage = Usage(input_tokens=1_900, output_tokens=1_240, cache_read_tokens=18_000 + 2_000 * turn)
        billed = {"usage": asdict(usage), "dollars": dollars, "model": MODEL}
        self.add("reply", line=line, seconds=21.0, turn=turn, content=list(blocks), stop_reason=stop_reason, **billed)

    def tool(
        self, line: int, name: str, text: str, *, effects: Any = (), error: bool = False, finish: str = ""
    ) -> None:
        """The answer to the first call that has none; every line's are answered before another line replies."""
        call = self.waiting.pop(0)
        assert call["name"] == name, f"{call['name']} is next, not {name}"
        asked = {"turn": self.turns[line], "id": call["id"], "name": name, "input": call["input"]}
        said = {"text": text, "is_error": error, "effects": effects, "finish": finish}
        self.add("tool", line=line, seconds=3.0, **asked, **said)

    def turn(self, line: int, thought: str, source: str, *verdicts: Verdict, say: str = "") -> None:
        """One turn that writes a kernel and has it judged by these stages."""
        calls = [call("create_file", path="kernel.py", text=source)]
        calls += [call(f"{verdict.stage}_kernel", path="kernel.py") for verdict in verdicts]
        said = [{"type": "text", "text": say}] if say else []
        self.reply(line, {"type": "thinking", "thinking": thought, "signature": "c2ln"}, *said, *calls)
        self.tool(line, "create_file", "kernel.py is written", effects=[WriteFile("kernel.py", source)])
        for verdict in verdicts:
            name, told = f"{verdict.stage}_kernel", f"{verdict.status}: {verdict.summary}"
            self.tool(line, name, told, effects=_effects(source, [verdict]), error=not verdict.passed)

    def finish(self, line: int, reason: str, *, ending: str = "finished") -> None:
        """The model ends its line of work."""
        self.reply(line, {"type": "text", "text": "Done."}, call("finish", reason=reason))
        self.tool(line, "finish", "The session ends.", finish=reason)
        self.add("ended", line=line, ending=ending, reason=reason)

    def first(self, kind: str) -> Any:
        """The first event of a kind, as a real session gives it."""
        return next((event for event in self.events if event["kind"] == kind), None)

    def result(self) -> AgentVerdict:
        """The result that these events come to, appended as the last event and returned."""
        self.state, self.folder, self.seconds = SessionState.of(self.events), Path("sessions/add-rms-norm"), 0.0
        verdict = conclude(self, EMULATED, problem="sessions/add-rms-norm/problem.py", model=MODEL)
        self.add("result", verdict=verdict.to_dict())
        return verdict


_calls = iter(range(10**9))


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """A block that asks for a tool."""
    return {"type": "tool_use", "id": f"toolu_{next(_calls)}", "name": name, "input": arguments}


def _effects(text: str, verdicts: Any) -> list[Any]:
    digest = hashlib.sha256(text.encode()).hexdigest()
    effects = [RecordVerdict(digest, text, verdict.to_dict()) for verdict in verdicts]
    if any(verdict.stage == "verify" and verdict.passed for verdict in verdicts):
        effects.append(KeepVersion("kernel.py", text, "verified", verdicts[0].to_dict()))
    return effects


def begin_line(session: Session, line: int, parent: int = 0, opening: str = "") -> None:
    """A line of work begins from the draft or from another line."""
    opening = opening or f"Line {line}: make the kernel faster than the draft."
    session.add("line", line=line, parent=parent, opening=opening, effects=[WriteFile("kernel.py", kernel(128))])


def timed_search() -> Session:
    """Three lines of work on a GPU: failures of every stage, a cheat, a search round, a finish."""
    session = Session()
    session.add("problem", source=PROBLEM, origin="request", audit={"ran": True, "every input matters": True})
    draft = kernel(128)
    session.judged(0, draft, lint(), compiled(128, 40), verified(), timed(214.0))
    for line in (1, 2, 3):
        begin_line(session, line)
    session.turn(1, "The draft reads x twice. Keep the sum in registers.", kernel(256), lint(), compiled(256, 64))
    session.turn(2, "Wider blocks first.", kernel(512), lint("cutlass.arch does not exist"))
    session.turn(3, "Could PyTorch do it?", kernel(128, note=" via torch"), rejected())
    session.turn(1, "It compiles; is it right?", kernel(256, staged=True), verified(), timed(151.3))
    session.turn(2, "The name is cute.arch.", kernel(512, note=" v2"), not_compiled("no attribute 'warp_reduce'"))
    session.turn(3, "Then by hand, scalar loads.", kernel(1024, vector=1), verified(), timed(402.7))
    session.turn(2, "cute.arch.warp_reduction_sum.", kernel(512, note=" v3"), verified(passed=False))
    fields = {"prediction": "one read of x less: 150 µs", "change": "sum in registers", "measurement": "151.3 µs"}
    session.reply(1, call("note", **fields))
    session.tool(1, "note", "noted", effects=[AddNote(fields)])
    session.turn(2, "The last row block is ragged.", kernel(512, staged=True), verified(), timed(139.9), profiled())
    session.add("round", round=1, kept=[1, 2], dropped=[3], lessons="Scalar loads cost a factor of 2.6; keep 16 bytes.")
    session.add("ended", line=3, ending="no progress", reason="dropped after round 1: 402.7 µs")
    session.add("message", line=1, text="Line 2 reached 139.9 µs with 512 threads and the sum in registers.")
    session.turn(1, "Combine both.", kernel(512, vector=8, staged=True, note=" evict_last"), verified(), timed(134.2))
    session.finish(1, "134.2 µs is 96 % of the floor: what is left is launch and tail.")
    session.finish(2, "Line 1 is ahead.")
    return session


def untimed() -> Session:
    """One line of work without a GPU: everything but time is known."""
    session = Session(limits={"dollars": None})
    session.add("problem", source=PROBLEM, origin="file", audit={})
    session.judged(0, kernel(128), lint(), compiled(128, 40))
    begin_line(session, 1)
    session.turn(1, "", kernel(256), lint("unknown name"))
    session.turn(1, "", kernel(256, note=" v2"), not_compiled("expected a tensor"))
    session.turn(1, "", kernel(256, note=" v3"), compiled(256, 64), verified(passed=False, ran_on="emulator"))
    session.turn(1, "", kernel(256, note=" v4"), verified(ran_on="emulator"))
    session.finish(1, "verified")
    return session


def hostile() -> Session:
    """Script tags, control characters and markup wherever a model, a kernel or a tool may put text."""
    evil = HOSTILE + "\x1b[2J\x07[bold red]\u202e\x00\ud800"
    session = Session(request=evil)
    session.add("problem", source=PROBLEM + f"# {HOSTILE}", origin="request", audit={HOSTILE: HOSTILE})
    source = kernel(128, note=HOSTILE.replace('"', "'"))
    session.judged(0, source, lint(evil))
    begin_line(session, 1, opening=evil)
    session.turn(1, evil, source + f"# {HOSTILE}", verified(passed=False, problem=evil, log=evil), say=evil)
    session.reply(1, {"type": "redacted_thinking", "data": "AAAA"}, call(HOSTILE, **{HOSTILE: evil}), dollars=None)
    session.tool(1, HOSTILE, evil, error=True)
    session.reply(1, call("create_file", path=HOSTILE, text=evil), {"type": "new_kind_of_block", "x": evil})
    session.tool(1, "create_file", evil, effects=[WriteFile(HOSTILE, evil), AddNote({"note": evil})])
    session.turn(1, evil, source + f"# {HOSTILE} 2", verified(log=evil), timed(150.0))
    session.add("round", round=1, kept=[1], dropped=[], lessons=evil)
    session.add("ended", line=1, ending=HOSTILE, reason=evil)
    return session


def long_session(turns: int = 1000, characters: int = 5_000) -> Session:
    """As many turns with this much text each, every fourth of them judged and timed."""
    session = Session()
    session.add("problem", source=PROBLEM, origin="file", audit={})
    begin_line(session, 1)
    thought = "why this is slow & how <it> could be faster; " * (characters // 92)
    filler = "# a line that is not there for long\n" * (characters // 74)
    for turn in range(turns):
        source = kernel(128, note=f" version {turn}") + filler
        verdicts = (verified(), timed(140 + 300 / (1 + turn))) if turn % 4 == 0 else (lint(f"finding {turn}"),)
        session.turn(1, thought, source, *verdicts)
    return session
