"""Engines that are misused, and what no emulated GPU has, through the commands: a sentence, an exit code, no pass."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cutesmith.commands.compile import main as compile_file
from cutesmith.commands.emulate import main as emulate
from cutesmith.commands.verify import main as verify
from cutesmith.profiling.emulation import emulate_kernel
from cutesmith.verdicts import ExitCode

SPECIMEN = Path(__file__).resolve().parents[1] / "emulator" / "kernels" / "engine_misuse.py"
MISUSES = {  # fault: architecture, words of the sentence, mark of its line
    "barrier waited for": ("sm_90a", "which is not an mbarrier: it was never initialised", "mbarrier_wait(full, 0)"),
    "barrier arrived at": ("sm_90a", "which is not an mbarrier: it was never initialised", "mbarrier_arrive(full)"),
    "barrier of a copy": ("sm_90a", "is not an mbarrier: it was never initialised", "inline_ptx(BULK"),
    "tensor map": ("sm_90a", "its tensor map is malformed: these 128 bytes are not a tensor map", "inline_ptx(BOX"),
    "tensor memory": ("sm_100a", "its block has allocated no columns", "inline_ptx(PRODUCT"),
    "descriptor of wgmma": ("sm_90a", "past the end of the block's", "inline_ptx(WGMMA"),
    "descriptor of tcgen05": ("sm_100a", "past the end of the block's", "inline_ptx(PRODUCT"),
}
COMMANDS = {
    "emulate": lambda path, arch: emulate([str(path), "--arch", arch, "--json"]),
    "script": lambda path, arch: emulate(["--json", "--timeout=60", "--arch", arch, "--script", str(path)]),
    "verify": lambda path, arch: verify([str(path), "--arch", arch, "--on=emulator", "--quick", "--seeds=1", "--json"]),  # noqa: E501  # fmt: skip
    "compile": lambda path, arch: compile_file([str(path), "--arch", arch, "--json"]),
}
EXECUTING = [command for command in COMMANDS if command != "compile"]


@pytest.fixture
def misused(tmp_path, monkeypatch):
    """A function that writes the specimen with a fault into the current folder."""
    monkeypatch.chdir(tmp_path)

    def write(fault: str | None) -> Path:
        path = tmp_path / "misused.py"
        path.write_text(SPECIMEN.read_text().replace("FAULT = None", f"FAULT = {fault!r}"))
        return path

    return write


def told(capfd, command: str, path: Path, arch: str) -> tuple[int, str]:
    """The exit code of a command and the summary of its verdict."""
    code = COMMANDS[command](path, arch)
    verdict = json.loads(capfd.readouterr().out)
    assert verdict["exit_code"] == code
    return code, verdict["summary"]


QUICK = {("tensor map", "emulate"), ("tensor memory", "emulate")}
CASES = [
    pytest.param(fault, command, marks=() if (fault, command) in QUICK else pytest.mark.slow)
    for fault in MISUSES
    for command in EXECUTING
]


@pytest.mark.parametrize(("fault", "command"), CASES)
def test_a_misuse_is_named_and_never_passes(misused, capfd, fault, command):
    arch, words, line = MISUSES[fault]
    path = misused(fault)
    code, summary = told(capfd, command, path, arch)
    assert (code, words in summary) == (ExitCode.CRASHED, True), summary
    number = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if line in text)
    assert f"misused.py:{number}" in summary


LACKING = {  # a line before the launch: words of the sentence, for a script and for a kernel file
    "triton.jit(lambda x: x)[(1,)](y)": "Triton",
    "torch.distributed.init_process_group('nccl')": "NCCL",
    "__import__('ctypes').CDLL('libcublas.so.12')": "libcublas.so",
}
OTHER_GPU = {  # an architecture that the kernel asks for: words of the sentence
    "sm_100a": "a kernel was compiled for sm_100a, which sm_90a cannot run",
    "sm_70": "a kernel is to be compiled for sm_70, which the DSL does not know",
}


@pytest.mark.slow
@pytest.mark.parametrize("line", LACKING)
def test_what_a_script_cannot_have_is_named(misused, capfd, line):
    path = misused(None)
    imports = "import torch\nimport triton\n" if "triton" in line else "import torch\n"
    text = path.read_text().replace("import torch\n", imports, 1)
    path.write_text(text.replace("    y = torch.empty_like(x)\n", f"    y = torch.empty_like(x)\n    {line}\n"))
    assert line in path.read_text()
    code, summary = told(capfd, "script", path, "sm_90a")
    assert (code, LACKING[line] in summary) == (ExitCode.UNAVAILABLE, True), summary


@pytest.mark.parametrize("wanted", OTHER_GPU)
@pytest.mark.parametrize(
    "command", [name if name == "emulate" else pytest.param(name, marks=pytest.mark.slow) for name in EXECUTING]
)
def test_code_for_another_gpu_is_named(misused, capfd, command, wanted):
    path = misused(None)
    options = f'options="--enable-tvm-ffi --gpu-arch {wanted}"'
    path.write_text(path.read_text().replace('options="--enable-tvm-ffi"', options))
    code, summary = told(capfd, command, path, "sm_90a")
    assert (code, OTHER_GPU[wanted] in summary) == (ExitCode.UNAVAILABLE, True), summary


@pytest.mark.slow
@pytest.mark.parametrize("wanted", ["sm_52", "sm_200", "nonsense"])
@pytest.mark.parametrize("command", COMMANDS)
def test_an_architecture_that_does_not_exist_is_named(misused, capfd, command, wanted):
    path = misused(None)
    options = f'options="--enable-tvm-ffi --gpu-arch {wanted}"'
    path.write_text(path.read_text().replace('options="--enable-tvm-ffi"', options))
    code, summary = told(capfd, command, path, "sm_90a")
    words = f"a kernel is to be compiled for {wanted}, which the DSL does not know"
    assert (code, words in summary) == (ExitCode.UNAVAILABLE, True), summary


@pytest.mark.parametrize("wanted", ["sm_52", "sm_200", "nonsense"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_for_a_gpu_that_is_not_in_the_table_is_refused(misused, capfd, command, wanted):
    code, summary = told(capfd, command, misused(None), wanted)
    assert code == (ExitCode.UNAVAILABLE if command == "script" else ExitCode.USAGE)
    assert f"'{wanted}' is not an architecture that cutesmith knows" in summary


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_without_a_fault_the_specimen_passes(misused, arch):
    assert emulate_kernel(misused(None), arch=arch).exit_code == ExitCode.PASSED
