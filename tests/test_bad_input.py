"""Bad input, end to end through the commands: each has its exit code and one clear sentence; none hangs or hurts."""

from __future__ import annotations

import importlib
import json
import time
from pathlib import Path

import pytest

from cutesmith.compiling.compilation import compile_siblings
from cutesmith.verdicts import ExitCode
from tests.judge.in_process import verdict_here

ROOT = Path(__file__).resolve().parent.parent
RELU = (ROOT / "tests" / "kernels" / "relu_tvm_ffi.py").read_text()
PROBLEM = """\
import torch

def reference_fn(x):
    return torch.relu(x)

def get_inputs():
    return [torch.randn(64, 64, device="cuda")]
"""
READERS = ("lint", "compile", "verify", "benchmark", "profile", "generate")


def run(capsys, verb: str, *arguments: object) -> tuple[int, str]:
    """The exit code of a command under --json, and the sentence (with its hint) of its one JSON object."""
    main = importlib.import_module(f"cutesmith.commands.{verb}").main
    code = main([*map(str, arguments), "--json"])
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["exit_code"] == code
    return code, f"{verdict['summary']}\n{verdict.get('hint', '')}"


def with_first_line(line: str) -> str:
    """The ReLU kernel file whose `kernel_fn` begins with another statement."""
    return RELU.replace("    global _compiled\n", f"    global _compiled\n    {line}\n", 1)


@pytest.mark.parametrize("verb", READERS)
@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: path.write_bytes(b"\x7fELF\0\0"), "binary file"),
        (lambda path: path.write_bytes(b"# \xff\n"), "not UTF-8"),
        (lambda path: path.write_bytes(b"#" * 5_000_001), "5,000,001 bytes"),
        (lambda path: path.write_text("import torch\ndef broken(:\n"), "invalid syntax"),
    ],
    ids=["missing", "folder", "binary", "latin-1", "huge", "syntax error"],
)
def test_what_is_no_python_file_is_refused_by_every_verb(capsys, tmp_path, verb, make, sentence):
    path = tmp_path / "kernel.py"
    make(path)
    code, summary = run(capsys, verb, path)
    assert sentence in summary
    assert code == ExitCode.USAGE


@pytest.mark.parametrize("verb", ["compile", "verify", "benchmark", "profile"])
def test_a_file_without_get_inputs_shows_the_lines_to_write(capsys, write_file, verb):
    code, summary = run(capsys, verb, write_file(RELU.replace("def get_inputs", "def inputs")))
    assert code == ExitCode.USAGE
    assert "defines no get_inputs at top level" in summary
    assert "def get_inputs(): return [" in summary


@pytest.mark.parametrize("verb", ["compile", "verify", "benchmark"])
def test_a_kernel_and_a_reference_of_other_arity_are_both_named(capsys, write_file, verb):
    code, summary = run(capsys, verb, write_file(RELU.replace("def reference_fn(x)", "def reference_fn(x, y)")))
    assert code == ExitCode.USAGE
    assert "kernel_fn (line 32) takes 1 positional argument and reference_fn (line 43) takes 2" in summary


COMPILED = {  # in this order, by two workers, one of which the last ends
    "cpu": RELU.replace('device="cuda"', 'device="cpu"'),
    "arity": RELU.replace("return [torch", "return [2.0, torch"),
    "raises": with_first_line("raise ValueError('no good')"),
    "forks": with_first_line("import os; os.fork()"),
    "500 GB": with_first_line("hog = bytearray(500 << 30)"),
    "prints": with_first_line("[print('x' * (1 << 20)) for _ in range(64)]"),  # 32 times what is kept of a log
    "exits": with_first_line("import os; os._exit(0)"),
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The verdict of each: a worker takes seconds to start, so they share two as the generator's candidates do."""
    folder = tmp_path_factory.mktemp("bad")
    paths = [folder / f"{name.replace(' ', '_')}.py" for name in COMPILED]
    for path, text in zip(paths, COMPILED.values(), strict=True):
        path.write_text(text)
    return dict(zip(COMPILED, compile_siblings(paths, "sm_90a", jobs=2), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "code", "sentence"),
    [
        ("cpu", ExitCode.USAGE, "input 0 is on cpu: get_inputs() must return CUDA tensors"),
        ("arity", ExitCode.USAGE, "kernel_fn(x) does not take the 2 inputs"),
        ("raises", ExitCode.CRASHED, "ValueError: no good"),
        ("forks", ExitCode.CRASHED, "Operation not permitted"),
        ("500 GB", ExitCode.CRASHED, "MemoryError"),
        ("exits", ExitCode.CRASHED, "left the process with exit code 0 before answering"),
    ],
)
def test_what_a_file_does_wrong_in_its_worker_is_told(compiled, name, code, sentence):
    assert COMPILED[name] != RELU
    assert sentence in compiled[name].summary
    assert compiled[name].exit_code == code


@pytest.mark.slow
def test_a_kernel_that_prints_without_end_fills_nothing(compiled):
    assert compiled["prints"].exit_code == ExitCode.PASSED
    assert len(compiled["prints"].summary) < 1000


def test_a_kernel_that_segfaults_ends_its_process_alone(capsys, write_file):
    path = write_file(with_first_line("import ctypes; ctypes.string_at(0)"))
    code, summary = run(capsys, "compile", path, "--arch", "sm_90a")
    assert "SIGSEGV" in summary
    assert code == ExitCode.CRASHED


@pytest.mark.parametrize(("value", "sentence"), [("None", "returned None"), ("3", "returned int 3")])
def test_what_a_kernel_returns_must_be_tensors(write_file, value, sentence):
    verdict = verdict_here(write_file(with_first_line(f"return {value}")), on="compile")
    assert f"kernel_fn {sentence}, not a tensor or a tuple of tensors" in verdict.summary
    assert verdict.exit_code == ExitCode.USAGE


def test_a_kernel_that_returns_a_dict_is_told_by_the_command(capsys, write_file):
    code, summary = run(capsys, "verify", write_file(with_first_line("return {'y': x}")), "--on", "compile")
    assert "kernel_fn returned dict" in summary
    assert "not a tensor or a tuple of tensors" in summary
    assert code == ExitCode.USAGE


def test_a_kernel_that_never_ends_is_stopped(capsys, write_file):
    started = time.monotonic()
    path = write_file(with_first_line("import time; time.sleep(1000)"))  # a loop would burn the time of other tests
    for seconds in (3, 30):
        code, summary = run(capsys, "verify", path, "--on", "compile", "--timeout", seconds)
        if "loading" not in summary:  # which takes longer than three seconds on a busy machine
            break
    assert code == ExitCode.TIMED_OUT
    assert f"did not finish within {seconds} s" in summary
    assert time.monotonic() - started < 100


def test_a_kernel_cannot_write_outside(capsys, write_file, tmp_path):
    outside = tmp_path / "outside.txt"
    path = write_file(with_first_line(f"open({str(outside)!r}, 'w').write('x')"))
    code, summary = run(capsys, "verify", path, "--on", "compile")
    assert not outside.exists()
    assert code in (ExitCode.CRASHED, ExitCode.REJECTED)
    assert "PermissionError" in summary or "open" in summary


def test_a_reference_that_raises_ends_the_generator_with_usage(capsys, write_file, tmp_path):
    text = PROBLEM.replace("return torch.relu(x)", "raise ValueError('the reference is broken')")
    code, summary = run(
        capsys, "generate", write_file(text, "problem.py"), "--out", tmp_path / "out", "--on", "compile"
    )
    assert code == ExitCode.USAGE
    assert "the reference is broken" in summary
