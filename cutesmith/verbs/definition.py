"""A verb's options and the tools that stand for it: its parser, its tools' signatures and their command lines.

An `Option` is an argument of `cutesmith VERB`. A `Tool` shows some of a verb's options to a model; a call of it becomes
the words of a command line.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from inspect import Parameter, Signature
from typing import Annotated, Any, Literal

from cutesmith.errors import UsageError


def positive(text: str) -> int:
    """The type of an option that counts something; argparse makes a usage error of ArgumentTypeError."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 up")
    return int(text)


@dataclass(frozen=True)
class Option:
    """One argument of a verb: `name` is "--arch" for an option, "file" for an operand. `type` bool makes a flag.

    `least` and `most` bound a tool's number, or how many values its list holds. `required` and `argument` (its name
    where that is not the option's) concern tools only. `nargs` "...": it takes all words after it, options too.
    """

    name: str
    _: KW_ONLY
    help: str = ""
    type: Callable[[str], Any] = str
    default: Any = None
    choices: tuple[str, ...] = ()
    metavar: str | None = None
    nargs: Literal["?", "*", "+", "..."] | None = None
    const: str | None = None
    repeated: bool = False
    argument: str = ""
    required: bool = False
    least: int | None = None
    most: int | None = None

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Let the parser take it."""
        if self.type is bool:
            parser.add_argument(self.name, action="store_true", help=self.help)
            return
        shared: dict[str, Any] = {"help": self.help, "metavar": self.metavar, "type": self.type}
        if self.repeated:
            parser.add_argument(self.name, action="append", default=[], **shared)
        else:
            choices = self.choices or None
            parser.add_argument(
                self.name, nargs=self.nargs, const=self.const, default=self.default, choices=choices, **shared
            )

    @property
    def parameter(self) -> str:
        """Its name as an argument of a tool."""
        return self.argument or self.name.removeprefix("--").replace("-", "_")

    @property
    def is_operand(self) -> bool:
        """Whether it stands on the command line without a name."""
        return not self.name.startswith("-")

    @property
    def _is_list(self) -> bool:
        return self.repeated or self.nargs in ("*", "+", "...")

    @property
    def takes_the_rest(self) -> bool:
        """Whether it takes all words after it."""
        return self.nargs == "..."

    def as_parameter(self, *, bounded: bool) -> Parameter:
        """The parameter that pydantic makes a JSON schema of; `bounded`: the schema states `least` and `most`."""
        from pydantic import Field

        one: Any = Literal[self.choices] if self.choices else self.type if self.type in (bool, int, float) else str
        kind: Any = list[one] if self._is_list else one
        default = self.default
        if self.required or self.nargs == "+" or (self.is_operand and self.nargs is None):
            default = Parameter.empty
        elif default is None and one in (int, float):
            kind = one | None
        elif default is None:
            default = False if one is bool else [] if self._is_list else ""
        limits: dict[str, Any] = {}
        if bounded and self._is_list:
            limits = {"min_length": self.least, "max_length": self.most}
        elif bounded:
            limits = {"ge": self.least, "le": self.most}
        annotation = Annotated[kind, Field(description=self.help, **limits)]
        return Parameter(self.parameter, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    def words(self, value: Any) -> list[str]:
        """The words that give this value on the command line, each option as one word; numbers are put into bounds.

        Raises UsageError for a list with too few or too many values.
        """
        if self._is_list and not (self.least or 0) <= len(value) <= (self.most or len(value)):
            raise UsageError(f"{self.parameter} holds {len(value)} values; give {self.least or 0} to {self.most}")
        if self.takes_the_rest:
            return [self.name, *value] if value else []
        if self.is_operand:
            return list(value) if self._is_list else [value]
        if self.type is bool:
            return [self.name] if value else []
        if self.type is int:
            value = value if self.most is None else min(value, self.most)
            value = value if self.least is None else max(value, self.least)
        given = value if self._is_list else [value]
        return [f"{self.name}={one}" for one in given if one not in ("", None)]


@dataclass(frozen=True)
class Tool:
    """What a model may call: `text` describes it, `options` are the verb's that it sets, `own` concern the tool alone.

    `writes`: it changes files; `network`: it may fetch something.
    """

    name: str
    text: str
    _: KW_ONLY
    options: tuple[Option, ...] = ()
    own: tuple[Option, ...] = ()
    writes: bool = False
    network: bool = False

    def signature(self, *before: Parameter, bounded: bool = False, returns: Any = Signature.empty) -> Signature:
        """The signature of the function that is called: `before`, then `own` and `options` by keyword."""
        named = [option.as_parameter(bounded=bounded) for option in (*self.own, *self.options)]
        return Signature([*before, *named], return_annotation=returns)

    def words(self, given: Mapping[str, Any]) -> list[str]:
        """The words after `cutesmith VERB` for these arguments: options first, then operands after `--`."""
        options: list[str] = []
        operands: list[str] = []
        rest: list[str] = []
        for option in self.options:
            if option.parameter in given:
                place = rest if option.takes_the_rest else operands if option.is_operand else options
                place.extend(option.words(given[option.parameter]))
        return [*options, "--", *operands] if operands else [*options, *rest]

    def dress(self, function: Callable[..., Any], signature: Signature) -> None:
        """Give a function that takes `**arguments` this tool's name, text and signature."""
        function.__name__, function.__doc__ = self.name, self.text
        function.__signature__ = signature  # type: ignore[attr-defined]
        function.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}


@dataclass(frozen=True)
class Verb:
    """A verb: `cutesmith NAME` with its options, and the tools that stand for it on each surface."""

    name: str
    _: KW_ONLY
    options: tuple[Option, ...] = ()
    mcp: tuple[Tool, ...] = ()
    agent: tuple[Tool, ...] = ()
