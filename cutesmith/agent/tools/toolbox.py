"""The tools of one line of work: their schemas, and calls that turn whatever a model sends into an Outcome."""

from __future__ import annotations

import difflib
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

from cutesmith.agent.models.message_stream import MALFORMED
from cutesmith.agent.models.model import Block
from cutesmith.agent.outcome import Outcome
from cutesmith.agent.texts.bounded_text import bounded
from cutesmith.agent.texts.hidden_pages import without_pages
from cutesmith.agent.tools.closing_tools import ClosingTools
from cutesmith.agent.tools.file_tools import FileTools
from cutesmith.agent.tools.judging import StorageError
from cutesmith.agent.tools.judging_tools import JudgingTools
from cutesmith.agent.tools.library_tools import LibraryTools
from cutesmith.agent.tools.version_tools import VersionTools
from cutesmith.agent.tools.workspace import Workbench
from cutesmith.errors import CutesmithError
from cutesmith.verb_process import VerbError
from cutesmith.verbs.definition import Verb
from cutesmith.verbs.kernel_verbs import BENCHMARK, CHECK, COMPILE, EMULATE, LINT, PROFILE, VERIFY
from cutesmith.verbs.library_verbs import FETCH, FIND, SEARCH

Tool = Callable[..., Awaitable[Outcome]]

WHOLE_TEXTS = ("text", "old_text", "new_text")  # arguments as large as a file, which has its own limit
EXACT_TEXTS = ("view_file", "create_file", "edit_file")  # answer with lines of files, which an edit has to match
MAX_ARGUMENT = 8000  # characters of any other
MAX_WHOLE_TEXT = 1_000_000
CRASHED = "This is a fault of the tool, not of your kernel: go on without it, or with other arguments."
_MOST_ECHO = 300


class Toolbox:
    """What a model may call. Building one is cheap; its schemas import the SDK (more than a second of CPU time)."""

    def __init__(self, workbench: Workbench) -> None:
        self._tools: dict[str, Callable[..., Any]] = {tool.__name__: tool for tool in _tools(workbench)}
        self._hidden = workbench.settings.hidden_pages

    @classmethod
    def of(cls, *tools: Callable[..., Any]) -> Toolbox:
        """A toolbox of these tools alone, for a conversation that has no workbench."""
        made = cls.__new__(cls)
        made._tools, made._hidden = {tool.__name__: tool for tool in tools}, ()
        return made

    def schemas(self) -> Schemas:
        """Name, description and JSON schema of every tool, always in the same order and to the byte."""
        return self._schemas

    @cached_property
    def _schemas(self) -> Schemas:
        return Schemas(self._tools.values())

    @cached_property
    def _checked(self) -> dict[str, Tool]:
        """The tools behind pydantic's check of their arguments: the one that the SDK makes the schemas of."""
        from pydantic import validate_call

        return {name: validate_call(tool) for name, tool in self._tools.items()}

    async def call(self, block: Block) -> Outcome:
        """Run the tool of a `tool_use` block. What the model did wrong, and a crash in a tool, are error outcomes.

        So is a process of the judge that ended without an answer: the kernel may be the cause. Two things go through:
        StorageError, as nothing can be judged any more, and a cancellation, which ends the tool's processes.
        """
        outcome = await self._called(block)
        if outcome.is_error or block.get("name") in EXACT_TEXTS:  # an error repeats what was asked for
            return outcome
        return replace(outcome, text=without_pages(outcome.text, self._hidden))

    async def _called(self, block: Block) -> Outcome:
        from pydantic import ValidationError

        name, given = str(block.get("name", "")), cast(Any, block.get("input"))
        if complaints := list(self._complaints(name, given)):
            return _error(" ".join(complaints))
        try:
            return await self._checked[name](**given)
        except ValidationError as error:
            lines = [f"{name} was not run:"]  # one line an argument: its name, pydantic's complaint, what was given
            for fault in error.errors(include_url=False):
                place = ".".join(map(str, fault["loc"]))
                shown = "" if fault["type"] == "missing_argument" else f" (given: {str(fault['input'])[:80]!r})"
                lines.append(f"- {place}: {fault['msg']}{shown}")
            return _error("\n".join(lines))
        except StorageError:
            raise
        except VerbError as error:
            return _error(f"{name} got no answer: {error.message}", hint="Try once more, or something smaller.")
        except CutesmithError as error:
            return _error(error.message, hint=error.hint)
        except Exception as error:
            return _error(f"{name} failed: {type(error).__name__}: {error}", hint=CRASHED)

    def _complaints(self, name: str, given: object) -> Iterator[str]:
        """What is wrong with a call before its arguments are looked at one by one."""
        if name not in self._tools:
            close = difflib.get_close_matches(name, self._tools, n=3, cutoff=0.6)
            yield f"there is no tool {name[:100]!r}."
            yield f"Did you mean {' or '.join(close)}?" if close else f"There are: {', '.join(self._tools)}."
        elif not isinstance(given, Mapping):
            yield f"the input of {name} is not a JSON object, but {str(given)[:_MOST_ECHO]!r}"
        elif MALFORMED in given:
            raw, fault = str(given[MALFORMED]), "it is not an object"
            try:
                json.loads(raw)
            except (ValueError, RecursionError) as error:
                fault = str(error)
            yield f"the input of {name} is not valid JSON, so nothing was done: {fault}. It has {len(raw)} characters"
            yield f"and ends: {raw[-_MOST_ECHO:]!r}. Send the whole call again; write a long file in several steps."
        else:
            for argument, value in given.items():
                yield from _unfit(str(argument), value)


class Schemas(Sequence[Any]):
    """The tools' schemas, made when they are read: a scripted model never does, and is spared the SDK's import."""

    def __init__(self, tools: Iterable[Callable[..., Any]]) -> None:
        self._tools = tuple(tools)

    @cached_property
    def _made(self) -> list[Mapping[str, Any]]:
        from anthropic import beta_async_tool

        return [beta_async_tool(tool).to_dict() for tool in self._tools]

    def __getitem__(self, index: Any) -> Any:
        return self._made[index]

    def __len__(self) -> int:
        return len(self._tools)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)


def _tools(workbench: Workbench) -> tuple[Callable[..., Any], ...]:
    """All tools; with a bare prompt only files, the judge and the end."""
    library, files, versions = LibraryTools(workbench), FileTools(workbench), VersionTools(workbench)
    judge, closing = JudgingTools(workbench), ClosingTools(workbench)
    editing = (files.view_file, files.create_file, files.edit_file)
    judging = (
        of_verb(LINT, judge.lint_kernel),
        of_verb(COMPILE, judge.compile_kernel),
        of_verb(VERIFY, judge.verify_kernel),
        of_verb(BENCHMARK, judge.benchmark_kernel),
    )
    if workbench.settings.bare:
        return (*editing, *judging, closing.finish)
    return (
        of_verb(SEARCH, library.search_references),
        of_verb(SEARCH, library.read_reference),
        of_verb(FIND, library.find_example),
        of_verb(FETCH, library.fetch_example),
        *editing,
        versions.backup_file,
        versions.revert_file,
        versions.list_checkpoints,
        of_verb(CHECK, judge.check_kernel),
        *judging,
        of_verb(PROFILE, judge.profile_kernel),
        of_verb(EMULATE, judge.emulate_kernel),
        of_verb(EMULATE, judge.emulate_script),
        closing.note,
        closing.read_notes,
        closing.finish,
    )


def of_verb(verb: Verb, method: Tool) -> Tool:
    """The tool of a verb that has the method's name, as the verb describes it.

    The method is called with the words of the verb's command line, and by keyword with the tool's own arguments.
    """
    tool = next(tool for tool in verb.agent if tool.name == method.__name__)

    async def call(**given: Any) -> Outcome:
        own = {option.parameter: given[option.parameter] for option in tool.own}
        return await method(*tool.words(given), **own)

    tool.dress(call, tool.signature())
    return call


def _unfit(argument: str, value: object) -> Iterator[str]:
    """What no argument may hold: too much, NUL characters, halves of surrogate pairs."""
    for text in value if isinstance(value, list) else [value]:
        if not isinstance(text, str):
            continue
        most = MAX_WHOLE_TEXT if argument in WHOLE_TEXTS else MAX_ARGUMENT
        if len(text) > most:
            yield f"{argument} has {len(text)} characters; at most {most} are allowed."
        if "\0" in text:
            yield f"{argument} holds a NUL character."
        if any("\ud800" <= character <= "\udfff" for character in text):
            yield f"{argument} is not valid Unicode: it holds half of a surrogate pair."


def _error(message: str, *, hint: str = "") -> Outcome:
    return Outcome(text=bounded(f"{message}\n{hint}" if hint else message), is_error=True)
