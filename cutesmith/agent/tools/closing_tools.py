"""`note` and `finish`. Docstrings here are what the model reads."""

from __future__ import annotations

import hashlib

from cutesmith.agent.outcome import AddNote, Outcome, RecordVerdict
from cutesmith.agent.session_state import JudgedKernel
from cutesmith.agent.texts.bounded_text import bounded
from cutesmith.agent.texts.lessons import failed_ideas
from cutesmith.agent.tools.confined_folder import ConfinedFolder
from cutesmith.agent.tools.workspace import KERNEL, Workbench
from cutesmith.errors import UsageError


class ClosingTools:
    """The development log, and the end of a line of work."""

    def __init__(self, workbench: Workbench) -> None:
        self.workbench = workbench

    async def note(self, prediction: str = "", change: str = "", measurement: str = "", note: str = "") -> Outcome:
        """Write an entry of the development log; people and other lines of work learn from it.

        Write the prediction with its reason before you measure, then the change, then the measurement. Give at least
        one field. The entry carries the hash of kernel.py as it is; read_notes shows all of them.

        Args:
            prediction: what you expect, in numbers, and why.
            change: what is different from the version before.
            measurement: what was measured or verified, and where.
            note: anything else, such as a lesson or a doubt.
        """
        fields = {"prediction": prediction, "change": change, "measurement": measurement, "note": note}
        given = {name: text.strip() for name, text in fields.items() if text.strip()}
        if not given:
            raise UsageError("nothing to note", hint=f"Give at least one of: {', '.join(fields)}.")
        text = ConfinedFolder(self.workbench.folder).read_or_none(KERNEL)
        sha256 = "" if text is None else hashlib.sha256(text.encode()).hexdigest()
        about = f" about {KERNEL} as it is ({sha256[:8]})" if sha256 else ""
        return Outcome(text=f"noted{about}: {', '.join(given)}", effects=(AddNote(given, sha256),))

    async def read_notes(self) -> Outcome:
        """Read the development log: the notes of all lines, the hash of the text that each is about, what failed."""
        state = self.workbench.state
        entries = [
            f"line {noted.line}{f', {noted.sha256[:8]}' if noted.sha256 else ''}: "
            + "; ".join(f"{name}: {' '.join(text.split())}" for name, text in noted.fields.items())
            for noted in state.notes
        ]
        failed = failed_ideas(state)
        lines = [*(entries or ["nothing was noted yet"]), *(["", "Ideas that failed:", *failed] if failed else [])]
        return Outcome(text=bounded("\n".join(lines)))

    async def finish(self, summary: str, give_up: bool = False) -> Outcome:
        """End this line of work; the best verified kernel is the result, whatever kernel.py holds now.

        Call it when the kernel is verified and nothing promising is left to try. It is refused while nothing is
        verified, unless you give up.

        Args:
            summary: one paragraph: what the kernel does, how fast it is and where that was measured, what bounds it.
            give_up: end without a verified kernel; say in the summary what stood in the way.
        """
        if not summary.strip():
            raise UsageError("summary is empty", hint="Say in one paragraph what was reached.")
        best = self.workbench.state.best()
        if best is None and not give_up:
            raise UsageError(
                "no kernel is verified yet, so there is no result to finish with",
                hint="Correct what verify_kernel says; or call finish with give_up and say what stands in the way.",
            )
        text = ConfinedFolder(self.workbench.folder).read_or_none(KERNEL) or ""
        held = self.workbench.state.kernels.get(hashlib.sha256(text.encode()).hexdigest())
        mine = self.workbench.state.best(self.workbench.line)
        is_peer = held and mine and held is not mine and (held.line, held.merit) == (mine.line, mine.merit)
        if best and held and is_peer:  # its verdict, said once more, makes it the latest
            effects = (RecordVerdict(held.sha256, held.text, held.verdicts["verify"]),)
            best = held if best is mine else best
            return Outcome(text=self._told(best, same=held is best), effects=effects, finish=summary.strip())
        return Outcome(text=self._told(best, same=held is best), finish=summary.strip())

    def _told(self, best: JudgedKernel | None, *, same: bool) -> str:
        if best is None:
            return "This line of work ends without a verified kernel."
        time = f", {best.median_us:.2f} µs" if best.median_us is not None else ""
        other = "" if same else f"; {KERNEL} holds another text now, which is not the result"
        return f"This line of work ends. The result is {best.sha256[:8]} ({best.state}{time}){other}."
