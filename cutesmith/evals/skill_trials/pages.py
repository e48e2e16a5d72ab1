"""What a page of the references costs and how often it is read: from the transcripts of an arm's sessions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cutesmith.agent.texts.hidden_pages import known_pages
from cutesmith.agent.transcript import Event, read_transcript
from cutesmith.evals.reading import RESULTS, read_attempts
from cutesmith.evals.scores.outcomes import Run
from cutesmith.evals.skill_trials.measuring import Difference, difference
from cutesmith.evals.skill_trials.trial import Step, Trial, run_folder
from cutesmith.references.sections import read_pages

CHARACTERS_A_TOKEN = 4
"""A rule of thumb for English; the tokens of a text are only known to the service that counts them."""
_ADDRESS = re.compile(r"^([\w-]+\.md)#", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class PageUse:
    """One page over `of` sessions: `sessions` that read it, `reads` of it, `hits` in answers of a search.

    `characters` are the page's own, `read_characters` what the answers to `reads` held; `tokens` is about a quarter of
    the page's characters.
    """

    page: str
    characters: int
    of: int
    sessions: int
    reads: int
    hits: int
    read_characters: int

    @property
    def tokens(self) -> int:
        """About how many, by the rule of thumb."""
        return self.characters // CHARACTERS_A_TOKEN


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """What the absence of a page costs: the whole skill less the skill without it."""

    use: PageUse
    difference: Difference


def transcripts(trial: Trial, out: Path, arm: str) -> Iterator[list[Event]]:
    """The events of every session of an arm."""
    for repeat in range(trial.repeats):
        folder = run_folder(out, Step(arm=arm, repeat=repeat))
        if (folder / RESULTS).is_file():
            paths = (attempt.transcript for attempt in read_attempts(folder))
            yield from (read_transcript(folder / path) for path in paths if path)


def page_uses(sessions: Iterable[list[Event]]) -> dict[str, PageUse]:
    """Every page by its name, also those that nobody read."""
    of, readers, reads, hits, characters = 0, Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for events in sessions:
        of += 1
        readings = list(_readings(events))
        readers.update({page for page, _ in readings})
        reads.update(page for page, _ in readings)
        hits.update(_hits(events))
        for page, length in readings:
            characters[page] += length
    lengths = {page.name: len(page.text) for page in read_pages()}
    return {
        page: PageUse(
            page=page,
            characters=lengths[page],
            of=of,
            sessions=readers[page],
            reads=reads[page],
            hits=hits[page],
            read_characters=characters[page],
        )
        for page in known_pages()
    }


def _readings(events: Iterable[Event]) -> Iterator[tuple[str, int]]:
    """Every page that was read, with the characters of the answer."""
    for event in _answers(events, "read_reference"):
        address = str((event.get("input") or {}).get("address", ""))
        name = address.strip().removeprefix("references/").partition("#")[0]
        yield name if name.endswith(".md") else f"{name}.md", len(event["text"])


def _hits(events: Iterable[Event]) -> Iterator[str]:
    for event in _answers(events, "search_references"):
        yield from _ADDRESS.findall(event["text"])


def _answers(events: Iterable[Event], tool: str) -> Iterator[Event]:
    return (event for event in events if event["kind"] == "tool" and event["name"] == tool and not event["is_error"])


def ablations(whole: Run, without: dict[str, Run], uses: dict[str, PageUse]) -> list[Ablation]:
    """Pages by what their absence costs: share solved first, then speed, then what the page takes."""
    found = [Ablation(use=uses[page], difference=difference(run, whole)) for page, run in without.items()]
    return sorted(found, key=_worth, reverse=True)


def _worth(ablation: Ablation) -> tuple[float, float, int]:
    difference = ablation.difference
    return difference.solved.value or 0.0, difference.speedup.value or 1.0, -ablation.use.characters
