"""The texts that begin a conversation, rendered from `prompts/*.j2`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from cutesmith.agent.session_state import TIE
from cutesmith.agent.texts.hidden_pages import without_pages
from cutesmith.agent.texts.machine_facts import has_sanitizer, machine_facts
from cutesmith.agent.texts.manifest import manifest_for
from cutesmith.errors import UnavailableError
from cutesmith.patterns.generation.target import Target
from cutesmith.verdicts import VERIFIED, VERIFIED_BY_EMULATION

FOLDER = Path(__file__).parent / "prompts"
REASON = " reason about speed with `profile_kernel` and `compile_kernel`, and"
PLACES = {
    "gpu": f"on this machine's GPU; a pass reads `{VERIFIED}`, and is timed.",
    "emulator": "on an emulated GPU, also wgmma and TMA; what it lacks ends in exit code 7 and is named. A pass reads "
    f"`{VERIFIED_BY_EMULATION}`. Nothing is timed:{REASON} claim none.",
    "compile": "nowhere: kernels are compiled, never executed; a pass reads `compiled`. Claim neither correctness nor "
    "speed.",
}


def render_prompt(name: str, **values: Any) -> str:
    """A template of this room with its values; every one must be given. Raises UnavailableError without jinja2."""
    text: str = _environment().get_template(f"{name}.j2").render(**values)
    return text.strip() + "\n"


@functools.cache
def _environment() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise UnavailableError("the agent needs jinja2", hint="python3 -m pip install jinja2") from error
    return jinja2.Environment(  # noqa: S701 - prompts are not HTML
        loader=jinja2.FileSystemLoader(FOLDER), undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def system_prompt(problem: str, request: str, target: Target, hidden_pages: tuple[str, ...] = ()) -> str:
    """What all lines of a session share: how work is judged, the machine, what fits of the manifest, the problem.

    `hidden_pages` of the references are not named in the manifest.
    """
    return render_prompt(
        "system",
        place=PLACES[target.place],
        timed=target.executes,
        machine=machine_facts(target),
        sanitizer=has_sanitizer(target),
        tie=TIE,
        manifest=without_pages(manifest_for(problem, request), hidden_pages),
        problem=problem.strip(),
        request=request,
    )


def bare_prompt(problem: str, target: Target) -> str:
    """The same for a session without the skill: the contract, the judge, the machine, the problem, and no advice."""
    return render_prompt(
        "bare",
        place=PLACES[target.place].replace(REASON, ""),
        timed=target.executes,
        machine=machine_facts(target),
        problem=problem.strip(),
    )
