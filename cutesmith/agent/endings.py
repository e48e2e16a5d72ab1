"""Why a line of work ends: each reason is an exception, so that the loop itself knows of none.

None of them is an error: whatever was verified before is the result.
"""

from __future__ import annotations


class Ending(Exception):
    """The end of a line of work; `name` is what result.json says, the message one sentence for people."""

    name = "ended"

    def __init_subclass__(cls, *, name: str) -> None:
        cls.name = name


class Finished(Ending, name="finished"):
    """The model called `finish`."""


class TargetReached(Ending, name="target reached"):
    """The asked speed-up or share of the roofline is there."""


class BudgetSpent(Ending, name="budget spent"):
    """Turns, tokens, dollars or time are used up."""


class NoProgress(Ending, name="no progress"):
    """As many turns as patience allows brought no faster verified kernel."""


class Refused(Ending, name="refused"):
    """The model declined to go on."""


class Silent(Ending, name="silent"):
    """The model kept answering without calling a tool."""


class Dropped(Ending, name="dropped"):
    """Other lines did better."""


class ModelFailed(Ending, name="model failed"):
    """The model could not be reached, or failed in a way that trying again does not help with."""


class Interrupted(Ending, name="interrupted"):
    """Somebody pressed Ctrl-C, or the process was asked to end."""
