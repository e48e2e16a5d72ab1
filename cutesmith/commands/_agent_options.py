"""The options of `cutesmith generate` for a session with a model, and the settings that they come to."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cutesmith.agent.models.anthropic_model import DEFAULT_EFFORT, DEFAULT_MODEL, key_present
from cutesmith.agent.models.messages_request import EFFORTS
from cutesmith.agent.settings import BARE, Settings
from cutesmith.agent.texts.hidden_pages import check_pages
from cutesmith.errors import UsageError
from cutesmith.remote_judge import RemoteHost


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that only a session with a model has."""
    group = parser.add_argument_group("with a model (--agent claude, --agent openai:MODEL)")
    group.add_argument("--model", metavar="NAME", help=f"which one (of Claude: {DEFAULT_MODEL})")
    group.add_argument("--effort", choices=EFFORTS, help=f"how much the model thinks (of Claude: {DEFAULT_EFFORT})")
    group.add_argument("--yes", action="store_true", help="do not ask whether the problem file is what was meant")
    group.add_argument("--no-draft", action="store_true", help="do not begin with the offline generator's kernel")
    group.add_argument("--bare", action="store_true", help="without the skill: its text, references, examples, draft")
    group.add_argument(
        "--without-page", action="append", default=[], metavar="PAGE", help="as if this reference did not exist"
    )
    group.add_argument("--candidates", type=int, metavar="N", help="lines of work at the same time (default: 1)")
    group.add_argument("--beam", type=int, metavar="K", help="after each round go on with the best K lines")
    group.add_argument("--rounds", type=int, metavar="N", help="rounds of a search with --beam (default: 3)")
    group.add_argument("--round-turns", type=int, metavar="N", help="turns of a round (default: 8)")
    group.add_argument("--remote", metavar="HOST", help="judge there, over ssh: HOST or HOST:/path/to/cutesmith")
    group.add_argument("--resume", metavar="DIR", help="go on with a session, also after it was killed")
    limits = parser.add_argument_group("limits of a session (the best verified kernel so far is always kept)")
    limits.add_argument("--max-turns", type=int, metavar="N", help="answers of the model on a line (default: 60)")
    limits.add_argument("--max-tokens", type=int, metavar="N", help="tokens, read, written and cached")
    limits.add_argument("--max-dollars", type=float, metavar="USD", help="dollars, by the price table")
    limits.add_argument("--max-minutes", type=float, metavar="MIN", help="wall time")
    limits.add_argument("--patience", type=int, metavar="N", help="turns without a better verified kernel")
    limits.add_argument("--target-speedup", type=float, metavar="X", help="enough: X times the fastest baseline")
    limits.add_argument("--target-floor", type=float, metavar="PCT", help="enough: PCT percent of the roofline")


def wants_agent(options: argparse.Namespace) -> bool:
    """Whether a model takes part; `--agent auto` looks for a key."""
    if options.resume:
        return True
    return key_present(os.environ) if options.agent == "auto" else options.agent != "draft"


def settings_of(options: argparse.Namespace, base: Settings) -> Settings:
    """The base with every option that was given; raises UsageError for numbers out of range."""
    given = {
        "agent": None if options.resume and options.agent == "draft" else options.agent,
        "model": options.model,
        "effort": options.effort,
        "arch": options.arch,
        "on": None if options.on == "auto" else options.on,
        "candidates": options.candidates,
        "beam": options.beam,
        "rounds": options.rounds,
        "round_turns": options.round_turns,
        "draft": False if options.no_draft else None,
        "configurations": options.configurations,
        "remote": options.remote,
        "skill": BARE if options.bare else None,
        "hidden_pages": check_pages(options.without_page) or None,
    }
    for name in ("skill", "hidden_pages"):  # all of a session's conversation has the same part of the skill
        if options.resume and given[name] not in (None, getattr(base, name)):
            wrong = f"{options.resume} was begun with another part of the skill ({name}: {getattr(base, name)!r})"
            raise UsageError(wrong, hint="Leave --bare and --without-page out, or begin a new session.")
    for name in POSITIVE:
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"--{name.replace('_', '-')} {value:g}: it must be positive")
    changed = {name: value for name, value in given.items() if value is not None}
    if options.remote:
        RemoteHost.of(options.remote)  # what names no host is told before anything is asked
    settings = replace(base, **changed, limits=replace(base.limits, **_limits(options)))
    if settings.beam and not 0 < settings.beam <= settings.candidates:
        raise UsageError(f"--beam {settings.beam}: from 1 to the number of --candidates ({settings.candidates})")
    if settings.bare and (settings.candidates > 1 or settings.hidden_pages):
        raise UsageError("--bare is one line of work without any reference", hint="Leave --candidates, --without-page.")
    return settings


def _limits(options: argparse.Namespace) -> Mapping[str, Any]:
    minutes = options.max_minutes
    given = {
        "turns": options.max_turns,
        "tokens": options.max_tokens,
        "dollars": options.max_dollars,
        "seconds": None if minutes is None else minutes * 60,
        "patience": options.patience,
        "target_speedup": options.target_speedup,
        "target_floor": options.target_floor,
    }
    return {name: value for name, value in given.items() if value is not None}


POSITIVE = (
    "candidates beam rounds round_turns max_turns max_tokens max_dollars max_minutes patience target_speedup "
    "target_floor"
).split()
