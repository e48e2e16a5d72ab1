"""What a judge orders of its fork server, and the answers: one JSON object a packet."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.sandbox.child import Program


@dataclass(frozen=True)
class Fork:
    """Fork a worker; with it come its ends of three pipes (requests, replies, log). Answered by Forked or Refused."""

    program: Program
    scratch: str
    environment: dict[str, str]


@dataclass(frozen=True)
class Reap:
    """Tell how a worker ended; answered by Reaped."""

    pid: int


@dataclass(frozen=True)
class Serve:
    """Serve another judge too, whose socket comes with this; not answered."""


@dataclass(frozen=True)
class Forked:
    """The new worker."""

    pid: int


@dataclass(frozen=True)
class Refused:
    """Why no worker can be forked soundly."""

    why: str


@dataclass(frozen=True)
class Reaped:
    """The exit code, minus the signal's number where one ended the worker."""

    code: int


Order = Fork | Reap | Serve
Answer = Forked | Refused | Reaped
