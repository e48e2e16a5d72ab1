"""Compiling a kernel file for several architectures without a GPU, in a confined process of its own.

The file's real `kernel_fn` runs on stand-ins for its inputs (tensors without storage; with values where the file reads
them), its launches are recorded and none is executed, also where a GPU is present. Every variant is built that
`get_inputs()` and the first sets of `get_input_sets()` need. Not covered: whether the kernel computes the right thing,
and launches on other inputs.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue

from cutesmith.compiling.narrowing import Compiled, described, narrow_instructions
from cutesmith.compiling.requests import CompiledFile, CompileFile
from cutesmith.compiling.sass import HOW_TO_GET_IT, disassembled, disassembler
from cutesmith.compiling.shares import COMPILED, NONE, Share, may_be_shared, merged, shares_of
from cutesmith.compiling.undefined_registers import noted, undefined_reads
from cutesmith.devices import DEFAULT_ARCHS, parse_arch
from cutesmith.errors import CandidateError, UsageError
from cutesmith.problems import contract
from cutesmith.sandbox.messages import HandlerMaker
from cutesmith.sandbox.worker import Pending, Worker
from cutesmith.verdicts import ArchReport, CompileVerdict, ExitCode

DEFAULT_TIMEOUT = 120.0

Progress = Callable[[str, int, int], object]
"""Told what is done, such as "kernels for sm_90a", and how many of how many are."""


def _silent(what: str, done: int, total: int) -> None: ...


def compile_kernel(
    path: str | Path,
    archs: Sequence[str] = DEFAULT_ARCHS,
    *,
    problem: str | Path | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    keep_dir: str | Path | None = None,
    variants: bool = True,
    progress: Progress = _silent,
) -> CompileVerdict:
    """Compile the file's kernel for each architecture and report what every launch of it uses.

    `problem` gives `get_inputs` where the kernel file has none; `timeout` is seconds for one architecture; `keep_dir`
    receives PTX, cubins and, where nvdisasm is installed, machine code as text. The functions of a file that has many
    are compiled by as many processes as there are processors (`shares`), and `progress` is told how many of how many
    are done, from several threads. Raises UsageError for an unknown architecture and ContractError for a file that is
    not a kernel file; whatever the kernel does wrong is in the verdict, whose exit code is that of the first
    architecture that failed.
    """
    started = time.perf_counter()
    targets = _targets(archs)
    contract.inspect_kernel(path, with_problem=problem is not None)
    if problem is not None:
        contract.inspect(problem)
    with contextlib.ExitStack() as opened:
        workers = [opened.enter_context(_Compilations(timeout)) for _ in range(os.cpu_count() or 1)]
        file = _File(path, problem, keep=keep_dir is not None, variants=variants)
        reports = tuple(workers[0].kept(file.compiled(workers, arch, progress), arch, keep_dir) for arch in targets)
    return _verdict(path, reports, time.perf_counter() - started, workers[0].narrow)


def compile_siblings(
    paths: Sequence[str | Path], arch: str, *, jobs: int = 1, variants: bool = False, progress: Progress = _silent
) -> Iterator[CompileVerdict]:
    """A verdict for each of several files of one origin, in order; they share `jobs` workers, since importing the DSL
    takes seconds. Files of many kernels follow each other, each in shares. `variants` and `progress` are as of
    `compile_kernel`, which says what is raised.
    """
    (target,) = _targets((arch,))
    if len(paths) == 1 or may_be_shared(paths[0]):
        yield from (compile_kernel(path, (target,), variants=variants, progress=progress) for path in paths)
        return
    with contextlib.ExitStack() as opened:
        workers = [opened.enter_context(_Compilations(DEFAULT_TIMEOUT)) for _ in range(jobs)]
        for first in range(0, len(paths), jobs):
            started, batch = time.perf_counter(), list(zip(workers, paths[first : first + jobs], strict=False))
            for compilations, path in batch:
                contract.inspect(path)
                compilations.ask(_File(path, None, keep=False, variants=variants), target)
            for compilations, path in batch:
                reports = (compilations.kept(compilations.reply(target), target, None),)
                yield _verdict(path, reports, time.perf_counter() - started, compilations.narrow)


def _verdict(
    path: str | Path, reports: tuple[ArchReport, ...], seconds: float, narrow: dict[str, int]
) -> CompileVerdict:
    failed = next((report for report in reports if report.exit_code != ExitCode.PASSED), None)
    return CompileVerdict(
        exit_code=failed.exit_code if failed else ExitCode.PASSED,
        summary=_summary(reports, failed, narrow),
        seconds=round(seconds, 3),
        path=str(path),
        archs=reports,
    )


def _targets(archs: Sequence[str]) -> tuple[str, ...]:
    if not archs:
        raise UsageError("no architecture was given", hint=f"Use one of {', '.join(DEFAULT_ARCHS)}")
    return tuple(dict.fromkeys(str(parse_arch(arch)) for arch in archs))


def compiler() -> HandlerMaker:
    """What a compiling worker runs: its imports, and the class of its handler."""
    import torch.fx.experimental.symbolic_shapes  # noqa: F401 - random numbers on the meta device want it: 500 modules

    from cutesmith.compiling.compilation_worker import Compiler

    return Compiler


@dataclass(frozen=True)
class _File:
    """What is compiled: a kernel file, where its inputs are, and what the reply is to hold."""

    path: str | Path
    problem: str | Path | None
    keep: bool
    variants: bool

    def compiled(self, workers: Sequence[_Compilations], arch: str, progress: Progress) -> CompiledFile:
        """The reply for one architecture: in shares, where there are several, else of one worker."""
        shares = self._shares(workers, arch) if len(workers) > 1 else []
        done = itertools.count(1)
        for worker in workers if shares else ():
            worker.on_compiled = lambda: progress(f"kernels for {arch}", next(done), shares[-1][1])
        replies = [*self._in_turn(workers, arch, shares)]
        if replies and all(reply.report.exit_code == ExitCode.PASSED for reply in replies):
            return merged(replies)
        workers[0].ask(self, arch)  # also where one share failed: the whole says it as it is
        return workers[0].reply(arch)

    def _in_turn(self, workers: Sequence[_Compilations], arch: str, shares: Sequence[Share]) -> Iterator[CompiledFile]:
        """The reply for each share, in order; a worker takes the next one as soon as it is done."""
        idle = SimpleQueue[_Compilations]()
        for worker in workers:
            idle.put(worker)

        def compiled(share: Share) -> CompiledFile:
            worker = idle.get()
            try:
                worker.ask(self, arch, share)
                return worker.reply(arch)
            finally:
                idle.put(worker)

        with ThreadPoolExecutor(len(workers)) as pool:
            yield from pool.map(compiled, shares)

    def _shares(self, workers: Sequence[_Compilations], arch: str) -> list[Share]:
        if not may_be_shared(self.path):
            return []
        workers[0].ask(self, arch, NONE)
        shares = shares_of(workers[0].reply(arch).calls, len(workers))
        return shares if len(shares) > 1 else []


class _Compilations:
    """One worker for all architectures, started when it is asked first; a new one where the last died."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._worker: Worker | None = None
        self._asked: Pending[CompiledFile] | CandidateError = CandidateError("ask() comes first", ExitCode.INTERNAL)
        self.on_compiled: Callable[[], object] = lambda: None  # called after each function of a share
        self.narrow = dict[str, int]()  # of the file that was compiled last

    def __enter__(self) -> _Compilations:
        return self

    def __exit__(self, *error: object) -> None:
        if self._worker is not None:
            self._worker.close()

    def ask(self, file: _File, arch: str, share: Share | None = None) -> None:
        """Hand over a request without waiting; `reply` must follow."""
        files = [str(Path(each).resolve()) for each in (file.path, file.problem) if each is not None]
        sources = {each: contract.problem_source(each) for each in files}
        request = CompileFile(
            path=files[0],
            problem=None if file.problem is None else files[1],
            arch=arch,
            keep=file.keep,
            variants=file.variants,
            sources=sources,
            share=share,
        )
        try:
            self._asked = self._live_worker().send(request)
        except CandidateError as error:
            self._asked = error

    def reply(self, arch: str) -> CompiledFile:
        """What was asked; of a worker that did not answer a report of why."""
        try:
            if isinstance(self._asked, CandidateError):
                raise self._asked
            return self._asked.reply(timeout=self._timeout)
        except CandidateError as error:
            text = f"{error.message}\n{error.log_tail[-4000:]}".strip()
            code = {ExitCode.TIMED_OUT: "TIMED_OUT", ExitCode.REJECTED: "REJECTED"}.get(error.exit_code, "CRASHED")
            failed = ArchReport(arch=arch, exit_code=error.exit_code, compile_seconds=0.0, error_code=code, error=text)
            return CompiledFile(failed, {})

    def kept(self, reply: CompiledFile, arch: str, keep_dir: str | Path | None) -> ArchReport:
        """The report of a reply, its artefacts written to `keep_dir`."""
        self.narrow = reply.narrow
        listings, no_sass = _disassembled(reply.cubin) if reply.cubin else ([], "")
        report = looked_at(reply.report, listings)
        if keep_dir is None or not reply.cubin:
            return report
        contents = {"ptx": [text.encode() for text in reply.ptx], "cubin": reply.cubin, "sass": listings}
        return replace(report, artifacts=_write_artifacts(Path(keep_dir), arch, contents), no_sass=no_sass)

    def _live_worker(self) -> Worker:
        if self._worker is None or not self._worker.alive:
            if self._worker is not None:
                self._worker.close()
            # The GPU, where there is one, stays out of reach: nothing here needs it.
            self._worker = Worker(compiler, environment={"CUDA_VISIBLE_DEVICES": ""}, follow=self._follow)
            self._worker.start()
        return self._worker

    def _follow(self, printed: str) -> None:
        for _ in range(printed.count(COMPILED)):
            self.on_compiled()


def looked_at(report: ArchReport, listings: Sequence[bytes]) -> ArchReport:
    """The report; kernels whose machine code, as text, reads registers that nothing has written have a note."""
    reads = [read for listing in listings for read in undefined_reads(listing.decode(errors="replace"))]
    kernels = tuple(noted(kernel, [read for read in reads if read.kernel == kernel.name]) for kernel in report.kernels)
    return replace(report, kernels=kernels) if reads else report


def _disassembled(cubins: Sequence[bytes]) -> tuple[list[bytes], str]:
    """The machine code of each as text, and what keeps it from being there, else ""."""
    program = disassembler()
    if program is None:
        return [], f"no disassembler is installed: {HOW_TO_GET_IT}"
    listings: list[bytes] = []
    for cubin in cubins:
        listing, why = disassembled(cubin, program)
        if why:
            return listings, f"{program} failed: {why}"
        listings.append(listing)
    return listings, ""


def _write_artifacts(folder: Path, arch: str, contents: Mapping[str, Sequence[bytes]]) -> dict[str, str]:
    """Write each as `MODULE.ARCH.KIND` and give the paths by kind, numbered where there are several."""
    folder.mkdir(parents=True, exist_ok=True)
    written: dict[str, str] = {}
    for kind, texts in contents.items():
        for index, content in enumerate(texts):
            name = kind if len(texts) == 1 else f"{kind}{index}"
            file = folder / f"module{index}.{arch}.{kind}"
            file.write_bytes(content)
            written[name] = str(file)
    return written


def _summary(reports: Sequence[ArchReport], failed: ArchReport | None, narrow: dict[str, int]) -> str:
    names = ", ".join(report.arch for report in reports if report.exit_code == ExitCode.PASSED)
    if failed is None:
        kernels = len({kernel.name for report in reports for kernel in report.kernels})
        done = f"{kernels} kernel{'s' * (kernels != 1)} compiled for {names}; nothing was executed"
        if found := sum(len(kernel.engines.findings) for report in reports for kernel in report.kernels):
            done += f"; {found} finding{'s' * (found != 1)} on TMA, mbarriers, tensor cores or registers"
        if wrong := {kernel.name for report in reports for kernel in report.kernels if kernel.undefined_registers}:
            done += f"; ptxas may have compiled {len(wrong)} of them wrongly: see notes"
        if narrow:  # parts of a number, multiplied and summed, may be as exact as the whole: `verify` measures it (O9)
            told = described(narrow_instructions(narrow), Compiled(narrow, {}))
            done += f"; it uses {told}, less than any type of the problem has: verify measures the error"
        return done
    what = "the hardware would refuse the launch" if failed.error_code == "LAUNCH_REFUSED" else failed.error_code
    line = f" (line {failed.error_line})" if failed.error_line else ""
    return f"{failed.arch}: {what}{line}: {_headline(failed)}" + (f"; compiled for {names}" if names else "")


def _headline(report: ArchReport) -> str:
    """The sentence of an error: its first line, or a traceback's last."""
    lines = [line.strip() for line in report.error.splitlines() if line.strip()]
    if not lines:
        return "no message"
    crashed = report.exit_code == ExitCode.CRASHED and lines[0].startswith("Traceback")
    return (lines[-1] if crashed else lines[0])[:400]
