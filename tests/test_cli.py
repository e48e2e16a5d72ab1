"""The command line: help that teaches, verbs found lazily, errors as sentences, JSON and exit codes."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cutesmith import __version__, cli
from cutesmith.commands._run import command_parser, report, run_command
from cutesmith.errors import CandidateError, ContractError
from cutesmith.verdicts import ExitCode, Verdict

ROOT = Path(__file__).resolve().parent.parent
SHIMS = {"lint", "compile", "verify", "emulate", "profile", "benchmark", "checkpoint", "generate"}


def run_module(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cutesmith", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, **options)


def start(code: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_help_teaches_the_path_the_verbs_and_the_exit_codes(capsys, arguments):
    assert cli.main(arguments) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {verb} " in text for verb in cli.VERBS)
    assert "problem.py ─► generate ─► kernel.py" in text
    assert "9 internal error of cutesmith" in text
    assert text.count("\n  cutesmith ") == 3


def test_the_version_is_told(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"cutesmith {__version__}\n"


@pytest.mark.parametrize(
    ("verb", "hint"), [("verfy", "Did you mean `cutesmith verify`?"), ("zzz", "Verbs: generate, lint, ")]
)
def test_an_unknown_verb_is_usage_with_a_suggestion(capsys, verb, hint):
    assert cli.main([verb]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert f"cutesmith has no verb {verb!r}" in captured.err
    assert hint in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("verb", [*cli.VERBS, *cli.MAINTENANCE])
def test_every_verb_has_a_main_and_a_help_with_examples_and_exit_codes(capsys, verb):
    command = importlib.import_module(f"cutesmith.commands.{verb.replace('-', '_')}")
    assert command.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert f"cutesmith {verb} " in text
    assert "--json" in text
    assert "exit codes:" in text
    assert text.index("examples:") < text.index("exit codes:")


@pytest.mark.parametrize("verb", [*cli.VERBS, *cli.MAINTENANCE])
def test_a_wrong_option_is_usage_as_json_too(capsys, verb):
    assert cli.main([verb, "--no-such-option", "--json"]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert json.loads(captured.out)["exit_code"] == 2
    assert "usage: " in captured.err


@pytest.mark.sampled(5)
@pytest.mark.parametrize("verb", sorted(SHIMS | {"doctor"}))
def test_the_script_of_a_verb_is_the_same_command_from_any_folder(run_script, verb):
    name = f"{verb}_kernel" if verb in SHIMS else verb
    done = run_script(name, "--help", cwd="/")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"usage: cutesmith {verb} " in done.stdout


def test_all_scripts_have_one_form_and_every_verb_for_agents_has_one():
    forms, verbs = set(), set()
    for path in sorted((ROOT / "scripts").glob("*.py")):
        text = path.read_text()
        (verb,) = re.findall(r'main\(\["([a-z-]+)"', text)
        lines = text.replace(f'"{verb}"', '"VERB"').split("\n")
        forms.add("\n".join(line for line in lines if not line.startswith('"""')))
        verbs.add(verb)
        assert os.access(path, os.X_OK), path
    assert len(forms) == 1
    assert verbs == cli.VERBS.keys() - {"skill", "mcp", "eval"} | cli.MAINTENANCE.keys()


def body_that_raises(error: BaseException):
    def body(argv: list[str]) -> int:
        raise error

    return body


def test_our_errors_become_a_sentence_a_hint_and_their_code(capsys):
    assert run_command(body_that_raises(ContractError("it is wrong", hint="do this")), []) == 2
    captured = capsys.readouterr()
    assert captured.err == "error: it is wrong\ndo this\n"
    assert captured.out == ""


def test_our_errors_are_an_object_under_json(capsys):
    error = CandidateError("it died", ExitCode.CRASHED, hint="look", log_tail="last line")
    assert run_command(body_that_raises(error), ["--json"]) == 5
    assert json.loads(capsys.readouterr().out) == {
        "stage": "error",
        "status": "crashed",
        "exit_code": 5,
        "summary": "it died",
        "hint": "look",
        "log_tail": "last line",
    }


def test_any_other_error_is_a_bug_of_ours(capsys):
    assert run_command(body_that_raises(KeyError("x")), ["--json"]) == 9
    captured = capsys.readouterr()
    assert "this is a bug of cutesmith: KeyError: 'x'" in captured.err
    assert "body_that_raises" in captured.err or "raise error" in captured.err
    assert json.loads(captured.out)["status"] == "internal"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("wrong\x1b[1A\x1b[2Kverified on the GPU", "wrongverified on the GPU"),  # over the line above
        ("wrong\rverified", "wrong\nverified"),
        ("wrong\x1b]0;a title\x07\x1b]8;;http://x\x1b\\", "wrong"),
        ("wrong\x9b2J\x00\x08\ud800\u202e", "wrong␀␈\ufffd\ufffd"),
        ("µs\tand\n核 \U0001f600", "µs\tand\n核 \U0001f600"),
    ],
)
def test_nothing_that_a_candidate_says_acts_on_the_terminal(capsys, said, shown):
    assert report(Verdict(exit_code=ExitCode.CRASHED, summary=said), as_json=False, lines=[said]) == 5
    assert capsys.readouterr().out == f"{shown}\n"
    error = CandidateError(said, ExitCode.CRASHED, hint=said, log_tail=said)
    assert error.message == error.hint == error.log_tail == shown and str(error) == f"{shown}\n{shown}"


def test_a_terminal_that_lacks_a_character_is_given_its_number():
    code = "from cutesmith.commands._run import run_command; run_command(lambda _: print('3 µs') or 0)"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, timeout=60, check=True)
    assert done.stdout == b"3 \\xb5s\n"


def test_a_missing_package_is_its_install_line(capsys):
    assert run_command(body_that_raises(ModuleNotFoundError("No module named 'cutlass'", name="cutlass.cute")), []) == 7
    assert "pip install nvidia-cutlass-dsl" in capsys.readouterr().err


def test_an_interrupt_is_quiet(capsys):
    assert run_command(body_that_raises(KeyboardInterrupt()), []) == 130
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_goes_away_ends_a_command_with_141():
    code = (
        "from cutesmith.commands._run import run_command; import sys\n"
        "def body(argv):\n    print('x' * 1_000_000)\n    return 0\n"
        "sys.exit(run_command(body, []))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.read(10)
        process.stdout.close()
        errors = process.stderr.read()
    assert (process.returncode, errors) == (141, b"")


def test_ctrl_c_ends_a_command_with_130():
    code = (
        "from cutesmith.commands._run import run_command; import signal, sys, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it\n"
        "def body(argv):\n    print('ready', flush=True)\n    time.sleep(60)\n    return 0\n"
        "sys.exit(run_command(body, []))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read()
    assert (process.returncode, errors) == (130, b"")


def test_a_verdict_is_printed_as_lines_or_as_one_object(capsys):
    verdict = Verdict(exit_code=ExitCode.LINT, summary="no", seconds=float("nan"))
    assert report(verdict, as_json=False, lines=["a", "b"]) == 3
    assert capsys.readouterr().out == "a\nb\n"
    assert report(verdict, as_json=True, lines=[]) == 3
    assert json.loads(capsys.readouterr().out)["seconds"] is None


def test_the_parser_of_a_verb_shows_examples(capsys):
    parser = command_parser("lint", "Checks.", examples=["cutesmith lint kernel.py"])
    assert "examples:\n  cutesmith lint kernel.py\n\nexit codes:" in parser.format_help()


def test_the_package_runs_as_a_module():
    done = run_module("--version")
    assert (done.returncode, done.stdout) == (0, f"cutesmith {__version__}\n")
    assert run_module("zzz").returncode == 2
