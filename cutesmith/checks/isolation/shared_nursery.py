"""The nursery of this process: started at its first worker, or lent by the process that started this one.

Whatever a nursery cannot do, the judge does without it: `fork_worker` then says why. A long-lived process that runs
verbs as children (`verb_process.run_verb`) lends them its own, over a socket that only they inherit, so that the
libraries are imported once for all of them.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cutesmith.checks.isolation.environment import ALLOWED_VARIABLES, PACKAGE_ROOT, PER_WORKER, clean_environment
from cutesmith.checks.isolation.nursery import ForkedProcess, Nursery, NurseryError, start_nursery

OFF = "CUTESMITH_NO_NURSERY"
LENT = "CUTESMITH_NURSERY"  # in a verb's environment: the descriptor, and what it must have in common with its lender
_SAME_THREADS = "OMP_NUM_THREADS"  # can be set for a worker, but not be taken back


class _Shared:
    """The nursery that all threads of this process ask."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.nursery: Nursery | None = None
        self._owner = 0
        self._given_up = not _supported()

    def get(self, key: Mapping[str, str]) -> Nursery | None:
        """The nursery for this environment; None where there can be none now."""
        with self.lock:
            if self._owner != os.getpid():  # a fork of the judge must not speak on its parent's socket
                self.nursery, self._owner = _borrowed(key), os.getpid()
            if self.nursery is not None and not self._fits(self.nursery, key):
                return None
            if self.nursery is None and not self._given_up:
                self.nursery = start_nursery(key)
            return self.nursery

    def _fits(self, nursery: Nursery, key: Mapping[str, str]) -> bool:
        """False for a nursery of another environment that is in use; one that is not, or is dead, is put away."""
        if nursery.alive and nursery.key == key:
            return True
        if nursery.alive and nursery.busy:
            return False
        self._put_away(nursery)
        return True

    def _put_away(self, nursery: Nursery) -> None:
        nursery.close()
        self.nursery = None

    def failed(self, nursery: Nursery) -> None:
        """Put one away that never forked a worker, and try no other: the next would fail alike."""
        with self.lock:
            if nursery.forked == 0 and nursery is self.nursery:
                self._given_up = True
                self._put_away(nursery)

    def close(self) -> None:
        """Hang up; the next worker starts another nursery."""
        with self.lock:
            if self.nursery is not None and self._owner == os.getpid():
                self._put_away(self.nursery)


def _supported() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))  # Linux 5.3
    except (AttributeError, OSError):
        return False
    return True


SHARED = _Shared()
atexit.register(SHARED.close)


def fork_worker(order: dict[str, Any], descriptors: Sequence[int]) -> ForkedProcess | str:
    """A worker forked from this process's nursery; or why it has to be started as a program of its own.

    `order` holds the entry, the settings of `child.py`, the scratch folder and the whole environment; `descriptors` are
    the worker's ends of the pipes for requests, replies and log. CUTESMITH_NO_NURSERY turns forking off.
    """
    common = clean_environment(Path("/"))
    if os.environ.get(OFF):
        return f"{OFF} is set"
    if _fixed(order["environment"]) != _fixed(common):
        return "another environment"
    nursery = SHARED.get(_key(common))
    if nursery is None:
        return "no nursery"
    try:
        return nursery.fork(order, descriptors)
    except NurseryError as error:
        SHARED.failed(nursery)
        return str(error)


def _fixed(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in PER_WORKER}


def _key(common: Mapping[str, str]) -> dict[str, str]:
    """What a nursery was started with and cannot change."""
    return {**_fixed(common), _SAME_THREADS: common.get(_SAME_THREADS, "")}


@contextlib.contextmanager
def lend_nursery(
    environment: Mapping[str, str] | None = None,
) -> Iterator[tuple[Mapping[str, str], tuple[int, ...]]]:
    """What a child process needs to use this process's nursery, variables and descriptors; to be left once it started.

    `environment` is the child's, where it says more than this process's.
    """
    more = {name: value for name, value in (environment or {}).items() if name in ALLOWED_VARIABLES}
    key = _key(clean_environment(Path("/"), more))
    nursery = None if os.environ.get(OFF) else SHARED.get(key)
    with contextlib.ExitStack() as opened:
        try:
            ours = opened.enter_context(nursery.connect()) if nursery else None
        except OSError:  # it died: the verb starts one of its own, and so will we
            ours = None
        yield ({}, ()) if ours is None else ({LENT: f"{ours.fileno()}:{_digest(key)}"}, (ours.fileno(),))


def _borrowed(key: Mapping[str, str]) -> Nursery | None:
    """The nursery that the parent lent, if it is of the same code and environment."""
    descriptor, _, digest = os.environ.pop(LENT, "").partition(":")
    if not descriptor.isdecimal():
        return None
    try:
        connection = socket.socket(fileno=int(descriptor))
    except OSError:
        return None  # a process between us and the lender did not pass it on
    connection.set_inheritable(False)
    if (connection.family, connection.type) == (socket.AF_UNIX, socket.SOCK_SEQPACKET) and digest == _digest(key):
        return Nursery(connection, key)
    connection.close()
    return None


def _digest(key: Mapping[str, str]) -> str:
    """Names environment, interpreter, and the state of our own sources."""
    newest = max(path.stat().st_mtime_ns for path in Path(PACKAGE_ROOT, "cutesmith").rglob("*.py"))
    return hashlib.sha256(json.dumps([PACKAGE_ROOT, sys.executable, newest, sorted(key.items())]).encode()).hexdigest()
