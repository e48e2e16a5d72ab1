"""A confined child process that runs a candidate: limits, a private pipe, and a kill that reaches every descendant.

`Worker` starts `child.py` in a session of its own with a clean environment and a scratch folder, forked where possible
(`shared_fork_server.py`). It bounds time, memory, processes, files and the log (`limits.py`); `confine()`
rules which files may be read and written. Not covered: using the GPU's memory and time (a watchdog ends the process,
not the kernel in flight), and, where the system has no Landlock or seccomp, what `confine()` then reports as off.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Generic

from cutesmith.errors import CandidateError
from cutesmith.sandbox.child import HEADER, MAX_FRAME_BYTES, Program, Raised, request_frame, write_frame
from cutesmith.sandbox.confinement import confine
from cutesmith.sandbox.environment import clean_environment
from cutesmith.sandbox.fork_server_orders import Fork
from cutesmith.sandbox.limits import GIB, Limits, LogTail, Watch
from cutesmith.sandbox.messages import Entry, R, Request, decode, name_of, phase_of, reply_type
from cutesmith.sandbox.processes import ProcessTree
from cutesmith.sandbox.scratch import Scratch
from cutesmith.sandbox.shared_fork_server import WorkerProcess, start_worker
from cutesmith.unicode import encodable
from cutesmith.verdicts import ExitCode, Mechanism, Rule, Violation

__all__ = ["GIB", "Limits", "Worker", "clean_environment", "confine", "phases", "run_isolated"]

WATCH_SECONDS = 0.05
WATCH_REST = 20  # times what looking at all processes of the machine took: 1.4 ms with 72 of them


class Pending(Generic[R]):
    """A request that was sent and whose reply was not read yet."""

    def __init__(self, worker: Worker, request: Request[R]) -> None:
        self.worker, self.request = worker, request
        self.nonce, self.begin = secrets.token_hex(16), time.monotonic()

    def reply(self, *, timeout: float | None = None) -> R:
        """The reply; raises as `Worker.call` does."""
        worker = self.worker
        if worker._verdict is not None:
            raise worker._verdict
        try:
            return worker._read(worker._receive(timeout or worker.limits.call_seconds), self)
        finally:
            kind = phase_of(self.request)
            worker.seconds[kind] = worker.seconds.get(kind, 0.0) + time.monotonic() - self.begin


class Worker:
    """A child that answers requests; use as a context manager.

    The child calls each of `preload`, then `entry` (`messages.Entry`), and asks a handler of the class that it returns;
    a fork server has called them before. `scratch` is the child's current, home and temporary folder (one is made and
    removed when None); `subject` is what messages name; `follow` is given what the child prints. With `gpu`, the
    address space is not limited (CUDA reserves far more than it uses) and memory is only watched. `seconds` is what
    each kind of request has taken so far, from sending to reply. `beside` are workers that are watched while this one
    is waited for, also while it starts, by whichever thread waits. `call` raises `CandidateError`.
    """

    def __init__(
        self,
        entry: Entry,
        *,
        preload: Sequence[Callable[[], object]] = (),
        limits: Limits | None = None,
        scratch: Path | None = None,
        gpu: bool = False,
        environment: Mapping[str, str] | None = None,
        subject: str = "the kernel",
        follow: Callable[[str], None] | None = None,
    ) -> None:
        self.entry, self.preload = entry, tuple(preload)
        self.limits, self.gpu, self.subject = limits or Limits(), gpu, subject
        self._own_scratch = scratch is None
        self.scratch = Path() if scratch is None else Path(scratch).resolve()
        self.environment = dict(environment or {})
        self._log = LogTail(follow)
        self._process: WorkerProcess | None = None
        self._verdict: CandidateError | None = None
        self.not_forked = ""  # why, where it is a program of its own, whose imports take seconds
        self.not_kept = ""  # why one that might have served was ended before this one was started
        self.seconds: dict[str, float] = {}
        self._next_watch, self._watching = 0.0, threading.Lock()
        self.beside: tuple[Worker, ...] = ()
        self._waits, self._complained = False, False
        self._starting: Future[None] | None = None

    def __enter__(self) -> Worker:  # noqa: PYI034 - typing.Self needs Python 3.11
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the child; its libraries are imported at the first call."""
        if self._own_scratch:
            self._own = Scratch()
            self.scratch = self._own.path
        self.scratch.mkdir(parents=True, exist_ok=True)
        requests, self._requests = os.pipe()
        self._replies, replies = os.pipe()
        self._log_pipe, log = os.pipe()
        token = secrets.token_hex(8)
        address_space = None if self.gpu else self._most_memory() + 8 * GIB  # libraries map more than they touch
        preload = tuple(map(name_of, self.preload))
        program = Program(name_of(self.entry), preload, self.limits.file_bytes, address_space)
        environment = {**clean_environment(self.scratch, self.environment), ProcessTree.MARK: token}
        order = Fork(program, str(self.scratch), environment)
        process, self.not_forked = start_worker(order, (requests, replies, log))
        for descriptor in (requests, replies, log):
            os.close(descriptor)
        os.set_blocking(self._log_pipe, False)
        os.set_blocking(self._replies, False)
        self._watched = Watch(ProcessTree(process.pid, token), self.scratch)
        self._process = process  # the last: another thread may kill it from here on

    @contextlib.contextmanager
    def starting(self) -> Iterator[Worker]:
        """As `with worker`, but its body begins at once; the first request waits for the child's libraries."""
        with ThreadPoolExecutor(1) as pool, contextlib.closing(self):
            self._starting = pool.submit(self.start)
            try:
                yield self
            finally:
                self._starting.exception()  # waits: what has begun has to be ended

    def _await_start(self) -> None:
        """Wait until the child is there, and watch the workers beside meanwhile; raises what its start does."""
        while self._starting is not None and not self._starting.done():
            self._watch_beside()
            concurrent.futures.wait([self._starting], WATCH_SECONDS)
        if self._starting is not None:
            self._starting.result()

    def _watch_beside(self) -> None:
        for other in self.beside:
            with contextlib.suppress(CandidateError):  # its own next call says it
                other._watch_when_due()

    def _most_memory(self) -> int:
        """Bytes that the child may hold at any time of its life."""
        return self.limits.memory_bytes

    def use_own_scratch(self) -> None:
        """Before `start`: take a scratch folder that goes with this worker, where that of its maker goes earlier."""
        self._own_scratch = True

    def serve_as(self, other: Worker) -> None:
        """From now on be bounded, named and counted as another worker, which is not started."""
        self.limits, self.subject, self.seconds = other.limits, other.subject, {}
        self._log, self.beside = LogTail(), ()

    @property
    def alive(self) -> bool:
        """Whether the child can take another request."""
        return self._verdict is None and self._process is not None and self._process.poll() is None

    @property
    def sound(self) -> bool:
        """Whether it lives, has answered every request, and none with an error."""
        return self.alive and not self._waits and not self._complained

    @property
    def log_tail(self) -> str:
        """The last lines of what the child printed, with a remark on how much was dropped."""
        dropped = f"[{self._log.dropped} bytes of log dropped]\n" if self._log.dropped else ""
        return f"{dropped}{self._log.text}"

    def call(self, request: Request[R], *, timeout: float | None = None) -> R:
        """The handler's reply to one request.

        Raises `CandidateError`: TIMED_OUT after `timeout` seconds (default: the limit; counted by `Clock.out_of_time`:
        CPU time without a GPU), CRASHED when the child raises,
        dies or uses too much, REJECTED (rule H2) when bytes that are not a reply arrive. After any of them but a raised
        exception the child is dead and every later call raises the same again.
        """
        return self.send(request).reply(timeout=timeout)

    def send(self, request: Request[R]) -> Pending[R]:
        """Hand over a request without waiting, so that several workers can start at once; its reply must be read."""
        self._await_start()
        if self._verdict is not None:
            raise self._verdict
        assert self._process is not None, "start() comes first"
        with contextlib.suppress(CandidateError):  # the reply says it
            self._watch_when_due()
        self._waits = True
        pending = Pending(self, request)
        try:
            if self._verdict is None:
                write_frame(self._requests, request_frame(pending.nonce, request))
        except BrokenPipeError:
            raise self._end(self._gone()) from None
        return pending

    def _receive(self, seconds: float) -> bytes:
        begin = self._watched.clock
        buffer, poller = bytearray(), select.poll()
        for descriptor in (self._replies, self._log_pipe):
            poller.register(descriptor, select.POLLIN | select.POLLHUP)
        while True:
            ready = {descriptor for descriptor, _ in poller.poll(int(WATCH_SECONDS * 1000))}
            if self._log_pipe in ready and not self._drain_log():
                poller.unregister(self._log_pipe)
            if self._replies in ready:
                with contextlib.suppress(BlockingIOError):
                    if not (part := os.read(self._replies, 1 << 20)):
                        raise self._end(self._gone())
                    buffer += part
                if (frame := self._complete(buffer)) is not None:
                    return frame
            if limit := (self._watched.clock - begin).out_of_time(seconds, gpu=self.gpu):
                raise self._end(self._timed_out(limit))
            self._watch_beside()
            self._watch_when_due()

    def _complete(self, buffer: bytearray) -> bytes | None:
        if len(buffer) < HEADER.size:
            return None
        (size,) = HEADER.unpack_from(buffer)
        if size > MAX_FRAME_BYTES or len(buffer) > HEADER.size + size:
            raise self._end(self._forged())
        return bytes(buffer[HEADER.size :]) if len(buffer) == HEADER.size + size else None

    def _read(self, frame: bytes, pending: Pending[R]) -> R:
        """What the frame says, if it is the child's answer and of the declared form; else it is forged (rule H2)."""
        reply: R | Raised
        try:
            answer = encodable(json.loads(frame))
            genuine = secrets.compare_digest(answer["nonce"], pending.nonce)
            if "error" in answer:
                reply = decode(answer["error"], Raised)
            else:
                reply = decode(answer["reply"], reply_type(type(pending.request)))
        except (ValueError, TypeError, KeyError, RecursionError):
            genuine = False
        if not genuine:
            raise self._end(self._forged())
        self._drain_log()
        self._waits = False
        if isinstance(reply, Raised):
            raise self._raised(reply)
        return reply

    def _raised(self, error: Raised) -> CandidateError:
        """What the child raised; by which code it likes to be known, but an error is not a pass."""
        self._complained = True
        known = error.exit_code in set(ExitCode) - {ExitCode.PASSED}
        code = ExitCode(error.exit_code) if known else ExitCode.CRASHED
        message = error.message
        if not error.ours:
            message = f"{self.subject} raised {error.kind}: {error.message or '(no message)'}"
        tail = f"{self.log_tail}\n{error.traceback}".strip()
        return CandidateError(
            message,
            code,
            hint=error.hint,
            log_tail=tail,
            rule=error.rule,
            mechanism=error.mechanism,
            fault=error.fault,
            context_lost=error.context_lost,
        )

    def _watch_when_due(self) -> None:
        now = time.monotonic()
        if not self.alive or now < self._next_watch or not self._watching.acquire(blocking=False):
            return
        try:
            excess = self._watched.excess(self.limits)
            self._next_watch = now + max(WATCH_SECONDS, WATCH_REST * (time.monotonic() - now))
        finally:
            self._watching.release()
        if excess:
            raise self._end(self._error(excess.what, ExitCode.CRASHED, excess.mechanism, hint=excess.hint))

    def _drain_log(self) -> bool:
        return self._log.drain(self._log_pipe, self.limits.log_bytes)

    def _gone(self) -> CandidateError:
        """Why the child is no longer there: the signal's name, or the code it left with."""
        assert self._process is not None
        try:
            code = self._process.wait(timeout=5)
            self._drain_log()
            what = f"left the process with exit code {code} before answering"
            what = f"was ended by {_signal_name(-code)}" if code < 0 else what
        except subprocess.TimeoutExpired:
            what = "closed the pipe to its parent"
        return self._error(what, ExitCode.CRASHED, Mechanism.VANISHED_WORKER)

    def _forged(self) -> CandidateError:
        text = f"{self.subject} wrote to the pipe that carries the result"
        violation = Violation(Rule.H2, Mechanism.PRIVATE_PIPE, text)
        return CandidateError.rejecting(violation, log_tail=self.log_tail)

    def _error(self, what: str, code: ExitCode, mechanism: Mechanism, *, hint: str = "") -> CandidateError:
        message = f"{self.subject} {what}"
        return CandidateError(message, code, hint=hint, log_tail=self.log_tail, mechanism=mechanism)

    def _timed_out(self, limit: str) -> CandidateError:
        code, mechanism = ExitCode.TIMED_OUT, Mechanism.TIME_LIMIT
        message = f"{self.subject} did not finish {limit}"
        return CandidateError(message, code, log_tail=self.log_tail, mechanism=mechanism, limit=limit)

    def _end(self, verdict: CandidateError) -> CandidateError:
        self._verdict = self._verdict or verdict  # another thread may have ended it for a better reason
        self.kill()
        return self._verdict

    def kill(self) -> None:
        """End the child at once, from any thread: a call that waits raises CandidateError (CRASHED)."""
        process = self._process  # another thread may close this worker meanwhile
        if process is not None:
            self._watched.tree.kill()
            process.wait()

    def close(self) -> None:
        """Kill whatever of the child is left and remove a scratch folder of its own."""
        if self._process is None:
            return
        self.kill()
        for descriptor in (self._requests, self._replies, self._log_pipe):
            os.close(descriptor)
        self._process = None
        if self._own_scratch:
            self._own.close()


def phases(**workers: Worker) -> dict[str, float]:
    """Seconds by who did what, such as {"reference draw": 1.2}; calls that overlap count on both sides.

    A worker that had to import its libraries says so at its start: "kernel start (not forked: 2 threads)"; and one that
    was started though a host keeps such processes: "reference start (not kept: os.environ)".
    """
    found: dict[str, float] = {}
    for who, worker in workers.items():
        reasons = {"not forked": worker.not_forked, "not kept": worker.not_kept}
        remarks = {"start": "".join(f" ({title}: {reason})" for title, reason in reasons.items() if reason)}
        found |= {f"{who} {what}{remarks.get(what, '')}": round(took, 3) for what, took in worker.seconds.items()}
    return found


def _signal_name(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    meanings = {"SIGSEGV": "segmentation fault", "SIGABRT": "abort", "SIGKILL": "killed", "SIGXFSZ": "file too large"}
    return f"{name} ({meanings[name]})" if name in meanings else name


def run_isolated(
    entry: Entry,
    request: Request[R],
    *,
    limits: Limits | None = None,
    gpu: bool = False,
    scratch: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> R:
    """One request to a fresh worker, which is gone afterwards; raises as `Worker.call` does."""
    with Worker(entry, limits=limits, scratch=scratch, gpu=gpu, environment=environment) as worker:
        return worker.call(request)
