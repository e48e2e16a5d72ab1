"""An installed copy works alone: its scripts, by relative path, where only torch and the DSL can be imported.

The environment is a real one without pip: links to the files of torch, of the DSL and of what those two require, and
nothing else. There is no home folder that could be written to, and no variable but PATH.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cutesmith.skill.installation import examine
from evals.skill.clean_environment import closure, make_environment

WANTED = ("torch", "nvidia-cutlass-dsl")
ROOT = Path(__file__).resolve().parents[2]
KERNEL = ROOT / "tests/kernels/relu_from_dlpack.py"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds torch and the DSL."""
    return make_environment(tmp_path_factory.mktemp("environment") / "venv", WANTED)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the user works: somewhere else, with a kernel file."""
    folder = tmp_path_factory.mktemp("work")
    shutil.copyfile(KERNEL, folder / "kernel.py")
    (folder / "home").write_text("no folder: nothing can be written here, whatever user runs this")
    return folder


@pytest.fixture(scope="module")
def run(python: Path, installed: Path, folder: Path):
    """A function that runs a script of the copy by its relative path, and gives its exit code and output."""

    def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        path = os.path.relpath(installed / "scripts" / f"{script}.py", folder)
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder / "home")}
        command = [python, path, *arguments]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100)

    return run


def test_the_environment_holds_torch_and_the_dsl_alone(python, folder):
    wanted = {distribution.name for distribution in closure(WANTED)}
    code = "import importlib.metadata as m; print('\\n'.join(d.name for d in m.distributions()))"
    done = subprocess.run([python, "-I", "-c", code], cwd=folder, capture_output=True, text=True, timeout=60)
    assert set(done.stdout.split()) == wanted
    assert not {"cutesmith", "numpy", "llvmlite", "rich", "httpx", "apache-tvm-ffi", "matplotlib"} & wanted


@pytest.mark.slow
def test_doctor_says_what_is_missing_and_how_to_get_it(run):
    done = run("doctor", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert {checks[name]["state"] for name in ("python", "torch", "nvidia-cutlass-dsl")} == {"ok"}
    assert checks["apache-tvm-ffi"]["fix"].startswith("pip install")
    assert checks["llvmlite"]["fix"].startswith("pip install")


def test_lint_resolves_the_names_of_the_installed_dsl(run):
    done = run("lint_kernel", "kernel.py", "--json")
    assert done.returncode == 0, done.stderr
    assert {finding["severity"] for finding in json.loads(done.stdout)["findings"]} <= {"note"}


@pytest.mark.slow
def test_compile_runs_the_host_code(run):
    done = run("compile_kernel", "kernel.py", "--arch", "sm_80", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["archs"][0]["kernels"][0]["registers"] > 0


@pytest.mark.parametrize("script", ["verify_kernel", "emulate_kernel"])
def test_the_emulated_gpu_names_the_package_that_it_needs(run, script):
    done = run(script, "kernel.py", *(["--on", "emulator"] if script == "verify_kernel" else []))
    assert done.returncode == 7
    assert "pip install llvmlite" in done.stdout


@pytest.mark.slow
def test_generate_names_the_package_that_it_needs(run, folder):
    (folder / "problem.py").write_text(
        "import torch\n\ndef reference_fn(x):\n    return x + 1\n\n"
        "def get_inputs():\n    return [torch.randn(8, device='cuda')]\n"
    )
    done = run("generate_kernel", "problem.py", "--on", "compile")
    assert done.returncode == 7
    assert "pip install apache-tvm-ffi" in done.stderr
    assert not (folder / "cutesmith-out").exists()


@pytest.mark.slow
def test_a_checkpoint_is_kept_and_listed(run, folder):
    assert run("checkpoint_kernel", "backup", "kernel.py", "--note", "first").returncode == 0
    listed = run("checkpoint_kernel", "list", "kernel.py", "--json")
    assert json.loads(listed.stdout)["checkpoints"][0]["note"] == "first"
    assert (folder / ".cutesmith/checkpoints").is_dir()


@pytest.mark.slow
def test_examples_and_references_are_found(run, installed):
    found = run("find_example", "row softmax", "--json")
    assert found.returncode == 0, found.stderr
    section = run("search_references", "UNSUP_EARLY_EXIT", "--json")
    assert section.returncode == 0, section.stderr
    assert (installed / "references" / json.loads(section.stdout)["hits"][0]["page"]).is_file()


@pytest.mark.slow
def test_every_script_has_its_help(python, installed, folder):
    """All of them in one process, for speed: each module is imported there for the first time all the same."""
    code = (
        "import runpy, sys\n"
        "for path in sys.argv[1:]:\n"
        "    sys.argv = [path, '--help']\n"
        "    try:\n        runpy.run_path(path, run_name='__main__')\n"
        "    except SystemExit as end:\n        assert end.code == 0, path\n"
    )
    scripts = sorted((installed / "scripts").glob("*.py"))
    done = subprocess.run([python, "-c", code, *scripts], cwd=folder, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("usage: cutesmith ") >= len(scripts)


def test_the_copy_is_as_it_was_installed(run, installed):
    run("doctor")
    copy = examine(installed)
    assert (copy.state, copy.changed, copy.added) == ("current", (), ())
