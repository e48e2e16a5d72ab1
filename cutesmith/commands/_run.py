"""What all commands share: its parser, its output, and how errors become exit codes.

@command
def main(argv: list[str]) -> int:
    parser = command_parser("lint", "Check a file without running it.", examples=["cutesmith lint kernel.py --json"])
    parser.add_argument("file")
    options = parser.parse_args(argv)
    verdict = lint_file(options.file)
    return report(verdict, as_json=options.json, lines=_table(verdict))
"""

from __future__ import annotations

import argparse
import functools
import io
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, Protocol

from cutesmith.errors import CandidateError, CutesmithError, UnavailableError, UsageError
from cutesmith.unicode import plain_text
from cutesmith.verbs.definition import Verb
from cutesmith.verdicts import ExitCode, Verdict, strict_json

INTERRUPTED = 130  # 128 + SIGINT, as shells report it
BROKEN_PIPE = 141  # 128 + SIGPIPE: the reader of our output went away

EXIT_CODES = """\
exit codes:
  0 passed              5 crashed
  1 wrong result        6 timed out
  2 usage or contract   7 not decided: it cannot run here, or has no element to judge
  3 lint error          8 rejected: the kernel cheats
  4 does not compile    9 internal error of cutesmith"""


class CommandParser(argparse.ArgumentParser):
    """An argument parser that raises UsageError instead of exiting, so that `--json` holds for usage errors too."""

    def error(self, message: str) -> NoReturn:
        """Raise UsageError with the usage line as its hint."""
        raise UsageError(f"{self.prog}: {message}", hint=f"{self.format_usage().strip()}\nMore: {self.prog} --help")


def command_parser(verb: str, description: str, *, examples: Iterable[str] = ()) -> CommandParser:
    """The parser of one verb: raw description, `--json`, and a help that ends with examples and the exit codes."""
    shown = "".join(f"\n  {example}" for example in examples)
    parser = CommandParser(
        prog=f"cutesmith {verb}",
        description=description,
        epilog=(f"examples:{shown}\n\n" if shown else "") + EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one strict JSON object on stdout")
    return parser


def verb_parser(verb: Verb, description: str, *, examples: Iterable[str] = ()) -> CommandParser:
    """The parser of a verb that `cutesmith.verbs` describes."""
    parser = command_parser(verb.name, description, examples=examples)
    for option in verb.options:
        option.add_to(parser)
    return parser


def report(verdict: Verdict, *, as_json: bool, lines: Iterable[str]) -> int:
    """Print the verdict on stdout, as one JSON object or as the given lines; returns its exit code."""
    print(verdict.to_json() if as_json else plain_text("\n".join(lines)))
    return int(verdict.exit_code)


def log_lines(log_tail: str) -> Iterator[str]:
    """The last lines of a log under their title; nothing for an empty one."""
    if log_tail:
        yield "last lines of the log:"
        yield from (f"  {line}" for line in log_tail.strip().splitlines()[-12:])


def unconfined_lines(whom: str, layers: Mapping[str, bool]) -> Iterator[str]:
    """A note on the layers of confinement that this system lacks; nothing where it has all."""
    if missing := [name for name, on in layers.items() if not on]:
        yield f"note: this system could not confine {whom} by {', '.join(missing)}"


def free_folder(name: str) -> Path:
    """`cutesmith-out/NAME`, with a number behind it where that is taken."""
    base = Path("cutesmith-out") / name
    names = (base, *(base.with_name(f"{name}-{n}") for n in range(2, 1000)))
    return next((folder for folder in names if not folder.exists()), base)


class Command(Protocol):
    """The `main` of a command: it takes a command line, that of the process where none is given."""

    def __call__(self, argv: Sequence[str] | None = None) -> int:
        """Run the command; returns its exit code."""


def command(body: Callable[[list[str]], int]) -> Command:
    """Make a command's body its `main`, which never raises (`run_command`)."""
    return functools.update_wrapper(functools.partial(run_command, body), body)


def run_command(body: Callable[[list[str]], int], argv: Sequence[str] | None = None) -> int:
    """Run a command's body and give its exit code, whatever it raises.

    CutesmithError: its sentence and hint on stderr (a JSON object on stdout under `--json`) and its own code. Any other
    exception: 9, with the traceback's last lines. Ctrl-C: 130, quietly. A reader that went away: 141, quietly.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        # Where a terminal's encoding lacks a character, such as that of µs, its number is written instead.
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(body, arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The interpreter flushes stdout again at exit: give it somewhere to write.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(body: Callable[[list[str]], int], arguments: list[str]) -> int:
    try:
        return int(body(arguments))
    except SystemExit as exit_request:  # argparse after --help or --version
        return exit_request.code if isinstance(exit_request.code, int) else int(bool(exit_request.code))
    except CutesmithError as error:
        return _show_error(error, as_json="--json" in arguments)
    except BrokenPipeError:
        raise
    except Exception as error:
        module = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else "cutesmith"
        if module != "cutesmith":
            missing = UnavailableError(f"{error}", hint=f"pip install {PACKAGES.get(module, module)}")
            return _show_error(missing, as_json="--json" in arguments)
        tail = "".join(traceback.format_exception(error)).strip()[-4000:]
        message = f"this is a bug of cutesmith: {type(error).__name__}: {error}"
        if "--json" in arguments:
            _print_error_json(ExitCode.INTERNAL, message, "Please report it with the lines of log_tail.", tail)
        print(f"{tail}\nerror: {message}", file=sys.stderr)
        return int(ExitCode.INTERNAL)


PACKAGES = {"cutlass": "nvidia-cutlass-dsl", "tvm_ffi": "apache-tvm-ffi"}
"""Packages whose name in the index is not the module's."""


def _show_error(error: CutesmithError, *, as_json: bool) -> int:
    tail = error.log_tail if isinstance(error, CandidateError) else ""
    if as_json:
        _print_error_json(error.exit_code, error.message, error.hint, tail)
    print(f"error: {error}", file=sys.stderr)
    if tail:
        print(tail, file=sys.stderr)
    return int(error.exit_code)


def _print_error_json(code: ExitCode, summary: str, hint: str, log_tail: str) -> None:
    fields = {"status": code.name.lower(), "exit_code": int(code), "summary": summary, "hint": hint}
    print(strict_json({"stage": "error", **fields, "log_tail": log_tail}))
