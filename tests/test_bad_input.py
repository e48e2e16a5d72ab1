"""Bad input, end to end through the commands: each has its exit code and one clear sentence; none hangs or hurts."""

from __future__ import annotations

import importlib
import json
import time
from pathlib import Path

import pytest

from cutesmith.verdicts import ExitCode

ROOT = Path(__file__).resolve().parent.parent
RELU = (ROOT / "tests" / "kernels" / "relu_tvm_ffi.py").read_text()
PROBLEM = """\
import torch

def reference_fn(x):
    return torch.relu(x)

def get_inputs():
    return [torch.randn(64, 64, device="cuda")]
"""
READERS = ("lint", "compile", "verify", "benchmark", "generate")


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


@pytest.mark.parametrize("verb", ["compile", "verify", "benchmark", "generate"])
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


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('device="cuda"', 'device="cpu"', "input 0 is on cpu: get_inputs() must return CUDA tensors"),
        ("return [torch", "return [2.0, torch", "kernel_fn(x) does not take the 2 inputs"),
    ],
    ids=["cpu", "arity"],
)
def test_wrong_inputs_are_named(capsys, write_file, old, new, sentence):
    assert old in RELU
    code, summary = run(capsys, "compile", write_file(RELU.replace(old, new)), "--arch", "sm_90a")
    assert sentence in summary
    assert code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("line", "code", "sentence"),
    [
        ("raise ValueError('no good')", ExitCode.CRASHED, "ValueError: no good"),
        ("import os; os.fork()", ExitCode.CRASHED, "Operation not permitted"),
        ("hog = bytearray(500 << 30)", ExitCode.CRASHED, "MemoryError"),
        ("import os; os._exit(0)", ExitCode.CRASHED, "left the process with exit code 0 before answering"),
        ("import ctypes; ctypes.string_at(0)", ExitCode.CRASHED, "SIGSEGV"),
    ],
    ids=["raises", "forks", "500 GB", "exits", "segfaults"],
)
def test_what_a_kernel_does_to_its_process_is_told(capsys, write_file, line, code, sentence):
    found, summary = run(capsys, "compile", write_file(with_first_line(line)), "--arch", "sm_90a")
    assert sentence in summary
    assert found == code


@pytest.mark.parametrize(
    ("value", "sentence"), [("None", "returned None"), ("3", "returned int 3"), ("{'y': x}", "returned dict")]
)
def test_what_a_kernel_returns_must_be_tensors(capsys, write_file, value, sentence):
    path = write_file(with_first_line(f"return {value}"))
    code, summary = run(capsys, "verify", path, "--on", "compile")
    assert f"kernel_fn {sentence}" in summary
    assert "not a tensor or a tuple of tensors" in summary
    assert code == ExitCode.USAGE


def test_a_kernel_that_loops_for_ever_is_stopped(capsys, write_file):
    started = time.monotonic()
    path = write_file(with_first_line("while True: pass"))
    code, summary = run(capsys, "verify", path, "--on", "compile", "--timeout", 8)
    assert code == ExitCode.TIMED_OUT
    assert "did not finish within 8 s" in summary
    assert time.monotonic() - started < 60


def test_a_kernel_that_prints_a_gigabyte_fills_nothing(capsys, write_file):
    path = write_file(with_first_line("[print('x' * (1 << 20)) for _ in range(1024)]"))
    code, summary = run(capsys, "compile", path, "--arch", "sm_90a")
    assert code == ExitCode.PASSED
    assert len(summary) < 1000


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
