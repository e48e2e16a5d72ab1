"""Why a line of work ends: each reason is an exception, so that the loop itself knows of none.

None of them is an error: whatever was verified before is the result.
"""

from __future__ import annotations


class Ending(Exception):
    """The end of a line of work; `name` is what result.json says, the message one sentence for people."""

    name = "ended"


class Finished(Ending):
    """The model called `finish`."""

    name = "finished"


class TargetReached(Ending):
    """The asked speed-up or share of the roofline is there."""

    name = "target reached"


class BudgetSpent(Ending):
    """Turns, tokens, dollars or time are used up."""

    name = "budget spent"


class NoProgress(Ending):
    """As many turns as patience allows brought no faster verified kernel."""

    name = "no progress"


class Refused(Ending):
    """The model declined to go on."""

    name = "refused"


class Silent(Ending):
    """The model kept answering without calling a tool."""

    name = "silent"


class Dropped(Ending):
    """Other lines did better."""

    name = "dropped"


class ModelFailed(Ending):
    """The model could not be reached, or failed in a way that trying again does not help with."""

    name = "model failed"


class Interrupted(Ending):
    """Somebody pressed Ctrl-C, or the process was asked to end."""

    name = "interrupted"
