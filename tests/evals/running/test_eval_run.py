"""`cutesmith eval run` as people call it: real processes, real judge, whatever lies in somebody's folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cutesmith.commands.eval_run import main
from tests.evals.running.judged_runs import results

PROBLEM = """\
import torch
def reference_fn(x):
    return torch.relu(x)
def get_inputs():
    return [torch.randn(1 << 10, device="cuda")]
"""
BROKEN = "def (\n"
ROOT = Path(__file__).resolve().parents[3]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "cutesmith", "eval", "run", *map(str, arguments)]


def eval_run(*arguments: object, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=timeout, cwd=ROOT)


pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def tasks(write_file, tmp_path):
    """A folder of problem files; a function that makes one of a name."""

    def make(*names: str) -> Path:
        for name in names:
            write_file(PROBLEM, f"tasks/level1/{name}.py")
        return tmp_path / "tasks"

    return make


def theirs(write_file, tmp_path):
    """Files that are not kernels, each in its own way."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "binary.py").write_bytes(bytes(range(256)) * 20)
    write_file(BROKEN, "theirs/broken.py")
    write_file("x = '" + "y" * 10_000_000 + "'\n", "theirs/huge.py")
    write_file("def kernel_fn(x):\n    raise SystemExit\n", "theirs/../theirs/two words/0.py")
    (tmp_path / "theirs" / "linked.py").symlink_to("/etc/hostname")
    return f"dir:{tmp_path / 'theirs'}"


@pytest.mark.slow
def test_whatever_lies_in_a_folder_has_its_verdict(write_file, tasks, tmp_path):
    suite = tasks("binary", "broken", "huge", "linked", "none")
    options = ("--suite", suite, "--agent", theirs(write_file, tmp_path), "--on", "compile", "--no-cache")
    done = eval_run(*options, "--out", tmp_path / "run", "--json")
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert (verdict["status"], verdict["done"], verdict["solved"]) == ("complete", 5, 0)
    lines = results(tmp_path / "run")
    found = {task.removeprefix("level1/"): (line["status"], line["summary"]) for (task, _), line in lines.items()}
    assert {name: status for name, (status, _) in found.items()} == {
        "binary": "usage",
        "broken": "usage",
        "huge": "unreadable",
        "linked": "unreadable",
        "none": "missing",
    }
    assert found["binary"][1] == "kernel.py is a binary file, not Python source"
    assert "[5/5]" in done.stderr


def libraries_said(tmp_path, capsys, *arguments):
    """What `run.json` says of the libraries of each task, after a run that finds no kernels."""
    common = ("--agent", f"dir:{tmp_path}", "--on", "compile", "--no-cache", "--out", tmp_path / "run")
    assert main([*map(str, (*arguments, *common))]) == 0, capsys.readouterr().err
    return {task["id"]: task["libraries"] for task in json.loads((tmp_path / "run" / "run.json").read_text())["tasks"]}


def test_run_json_says_which_tasks_a_library_computes(write_file, tasks, tmp_path, capsys):
    library = "TASKS = {'level1/known': 'relu'}\ndef relu(x):\n    return x.relu()\n"
    folder = write_file(library, "libraries/fast.py").parent
    said = libraries_said(tmp_path, capsys, "--suite", tasks("known", "unknown"), "--libraries", folder)
    assert said == {"level1/known": ["fast.py:relu"], "level1/unknown": []}


@pytest.mark.parametrize("options", [(), ("--quick",), ("--libraries", "none")], ids=["timed", "quick", "none"])
def test_run_json_says_so_of_our_suites_also_where_no_library_is_timed(tmp_path, capsys, options):
    said = libraries_said(tmp_path, capsys, "--suite", "level1", "--only", "softmax", "relu", *options)
    assert said == {"level1/relu": [], "level1/softmax": ["quack.py:softmax"]}


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_kernel_goes_through_the_stages_and_a_second_run_takes_it_from_the_cache(write_file, tasks, tmp_path, capsys):
    kernel = (ROOT / "tests" / "kernels" / "relu_tvm_ffi.py").read_text()
    write_file(kernel, "theirs/relu.py")
    common = ("--suite", tasks("relu"), "--agent", f"dir:{tmp_path / 'theirs'}", "--on", "compile", "--quiet")
    done = eval_run(*common, "--cache", tmp_path / "cache", "--out", tmp_path / "one")
    assert done.returncode == 0 and "1 compiled" in done.stdout, done.stderr + done.stdout
    (line,) = results(tmp_path / "one").values()
    assert (line["stage"], line["status"], line["correct"]) == ("verify", "compiled", False)
    verdicts = json.loads((tmp_path / "one" / line["verdicts"]).read_text())["verdicts"]
    assert verdicts["compile"]["archs"][0]["kernels"][0]["registers"] > 0 and verdicts["verify"]["ran_on"] == "compile"
    assert main([*map(str, common), "--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "two")]) == 0
    assert "1 compiled (1 cached)" in capsys.readouterr().out


def lines_of(folder: Path) -> int:
    file = folder / "results.jsonl"
    return file.read_bytes().count(b"\n") if file.is_file() else 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_no_process_and_goes_on_by_its_folder_alone(write_file, tasks, tmp_path, number):
    names = [f"task{number}" for number in range(40)]
    for name in names:
        write_file(f"{BROKEN}# {name}\n", f"theirs/{name}.py")
    tasks(*names)
    out, environment = tmp_path / "run", {**os.environ, "MARK_OF_THIS_TEST": str(tmp_path)}
    arguments = ("--suite", "tasks", "--agent", "dir:theirs", "--on", "compile", "--no-cache")  # from where they are
    line = command(*arguments, "--out", out, "--jobs", 1)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(line, cwd=tmp_path, **pipes, env=environment) as child:
        while child.poll() is None and lines_of(out) < 1:
            time.sleep(0.01)
        child.send_signal(number)
        output, _ = child.communicate(timeout=60)
    before = lines_of(out)
    assert before < 40
    if number == signal.SIGINT:
        assert child.returncode == 130 and f"cutesmith eval run --resume --out {out}" in output
        about = json.loads((out / "run.json").read_text())
        assert about["summary"]["interrupted"] and about["summary"]["done"] == before
    deadline = time.monotonic() + 30 * (number == signal.SIGKILL)  # then they end by themselves
    while (left := [pid for pid in os.listdir("/proc") if pid.isdigit() and marked(pid, str(tmp_path))]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.1)
    assert not left
    resumed = eval_run("--resume", "--out", out)
    assert resumed.returncode == 0 and f"[{before + 1}/40]" in resumed.stderr and "[40/40]" in resumed.stderr
    assert len(results(out)) == 40 and {line["status"] for line in results(out).values()} == {"usage"}


def marked(pid: str, mark: str) -> bool:
    try:
        return f"MARK_OF_THIS_TEST={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--agent", "gpt"), "there is no such agent"),
        (("--suite", "nowhere"), "nowhere: no suite, folder or file"),
        (("--samples", "0"), "'0' is not a number from 1 up"),
        (("--time-limit", "soon"), "'soon' is not a number of seconds"),
        (("--on", "gpu", "--gpus", "x"), "--gpus x" if os.path.exists("/dev/nvidia0") else "has no GPU"),
        (("--resume",), "--resume needs --out"),
        (("--resume", "--out", "/nowhere/at/all"), "holds no run"),
        (("--agent", "draft", "--", "--max-turns", "3"), "only a session with a model takes options"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(capsys, arguments, said):
    assert main(list(arguments)) in (2, 7)
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_claude_without_a_key_is_found_out_before_the_first_task(capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    assert main(["--agent", "claude", "--out", str(tmp_path / "run")]) in (2, 7)
    assert "ANTHROPIC_API_KEY" in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_the_group_lists_its_subcommands_and_suggests_one(capsys):
    from cutesmith.commands.eval import SUBCOMMANDS, main

    assert main([]) == 0
    assert all(f"  {name} " in capsys.readouterr().out for name in list(SUBCOMMANDS)[:1])
    assert main(["rnu"]) == 2 and "cutesmith eval run" in capsys.readouterr().err
