"""The three forms of a window kernel, each a template of its own."""

from __future__ import annotations

from typing import Literal

from cutesmith.patterns.graph.windows import Samples
from cutesmith.patterns.windows.analysis import WindowsProblem
from cutesmith.patterns.windows.configuration import WindowsConfiguration
from cutesmith.patterns.windows.repetition import Repetition

Form = Literal["lines", "channels", "repeated"]
"""What a thread makes: neighbours in a line, channels of one position, or samples that lie as its neighbours' do."""


def form_of(problem: WindowsProblem, c: WindowsConfiguration) -> Form:
    """The form of a configuration."""
    if c.in_channels:
        return "channels"
    return "repeated" if repetitions(problem, c) and not c.by_channels else "lines"


def repetitions(problem: WindowsProblem, c: WindowsConfiguration) -> tuple[Repetition, ...]:
    """How the samples of a thread lie along a line and, if there are several, over the lines; () if threads differ."""
    counts = zip(reversed(problem.spans), (c.outputs, c.lines), strict=False)
    found = [Repetition.of(span, count) if isinstance(span, Samples) else None for span, count in counts]
    known = tuple(repetition for repetition in found if repetition is not None)
    return known if len(known) == len(found) else ()
