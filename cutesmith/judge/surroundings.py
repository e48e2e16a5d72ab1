"""What a candidate may have changed of the process round it: threads and identities, before and after (T2, T4, H1)."""

from __future__ import annotations

import builtins
import json
import os
import sys
import time
from types import FunctionType
from typing import Any

import torch

from cutesmith.verdicts import Mechanism, Rule, Violation

_frames = sys._current_frames  # captured before any candidate is loaded


class Surroundings:
    """Identities of what a candidate might replace, and the number of Python threads, at one moment."""

    def __init__(self) -> None:
        self._identities = dict(_identities())
        self._threads = len(_frames())

    def changes(self) -> list[Violation]:
        """Everything that is no longer what it was."""
        now = dict(_identities())
        changed = [name for name, identity in self._identities.items() if now.get(name) != identity]
        rules = [Rule.H1 if name.startswith("cutesmith.") else Rule.T4 for name in changed]
        replaced = [f"the kernel replaced {name}" for name in changed]
        found = [Violation(rule, Mechanism.IDENTITIES, text) for rule, text in zip(rules, replaced)]
        if (extra := len(_frames()) - self._threads) > 0:
            text = f"the kernel left {extra} background thread{'s' if extra > 1 else ''} running"
            found.append(Violation(Rule.T2, Mechanism.THREADS, text))
        return found


_WATCHED: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    ("time", time, ("perf_counter", "perf_counter_ns", "monotonic", "time", "time_ns", "sleep")),
    ("os", os, ("read", "write", "_exit", "kill")),
    ("json", json, ("dumps", "loads")),
    ("builtins", builtins, ("open", "len", "isinstance", "type", "max", "min", "sum", "sorted", "all", "any")),
    ("torch", torch, ("allclose", "isclose", "equal", "isnan", "empty", "empty_like", "full", "frombuffer", "testing")),
    (
        "torch.cuda",
        torch.cuda,
        ("Event", "Stream", "synchronize", "current_stream", "_sleep", "init", "default_stream"),
    ),
    ("torch.testing", torch.testing, ("assert_close",)),
    ("torch.Tensor", torch.Tensor, ("copy_", "equal", "view", "set_", "__eq__", "data_ptr", "cpu", "clone", "zero_")),
)


def _identities() -> list[tuple[str, tuple[int, int]]]:
    watched = [(f"{title}.{name}", _identity(owner, name)) for title, owner, names in _WATCHED for name in names]
    event = [(f"torch.cuda.Event.{name}", _identity(torch.cuda.Event, name)) for name in _EVENT_METHODS]
    ours = [module for name, module in list(sys.modules.items()) if name.startswith(_OWN_ROOMS)]
    return watched + event + [pair for module in ours for pair in _functions(module.__name__, vars(module))]


_OWN_ROOMS = tuple(
    f"cutesmith.{room}." for room in "sandbox lint compiling judge timing profiling audit".split()
)  # the rooms whose functions decide
_EVENT_METHODS = ("record", "elapsed_time", "synchronize", "query", "wait")


def _functions(prefix: str, names: dict[str, Any]) -> list[tuple[str, tuple[int, int]]]:
    """Functions and classes of a module (with their methods): which object, and which code."""
    found = []
    for name, value in list(names.items()):
        if isinstance(value, FunctionType):
            found.append((f"{prefix}.{name}", (id(value), id(value.__code__))))
        elif isinstance(value, type) and value.__module__ == prefix:
            found.append((f"{prefix}.{name}", (id(value), 0)))
            found += _functions(f"{prefix}.{name}", dict(vars(value)))
    return found


def _identity(owner: Any, name: str) -> tuple[int, int]:
    value = getattr(owner, name, None)
    own = vars(owner).get(name, value)  # a method looked up on a class may be a new object each time
    return id(own), id(getattr(value, "__code__", None))
