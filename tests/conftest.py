"""What all tests share: tests marked `gpu` are skipped where there is none, and problem files to work on."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import subprocess
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Test processes share the cores already: OpenMP threads of each would spin while they wait for one another, and double
# the CPU time. Workers inherit it (`sandbox` lets the name pass). Before any import of torch.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # as evaluation slots have it: one fork server serves all

# What takes over three seconds of CPU time, the longest first: begun last, it would keep one process alone at work.
# Before all Ray's nodes, of the slow tests, which wait for one another most of the time.
LONGEST = """
evals/engines/test_ray_engine.py
patterns/test_trace.py
patterns/test_attention.py
agent/test_toolbox.py
sandbox/test_isolation.py
patterns/test_elementwise.py
sandbox/test_fork_server.py
judge/test_verification_by_emulation.py
patterns/test_rows.py
patterns/test_other_sizes.py
compiling/test_compilation.py
judge/test_rounded_convolutions.py
patterns/test_cutting.py
judge/test_open_ties.py
report/test_session_page.py
emulator/test_device.py
judge/test_verification.py
judge/test_excuses.py
references/test_pages.py
agent/test_tools_library.py
recording/test_sessions.py
patterns/test_blackwell_contraction.py
test_layering.py
patterns/test_windows.py
patterns/test_fuzz.py
patterns/test_scans.py
emulator/tensor_cores/test_tcgen05_forms.py
agent/test_openai_model.py
skill/test_alone.py
emulator/tensor_cores/test_recorded.py
examples/test_own_kernels.py
patterns/test_convolutions.py
patterns/test_dual_products.py
agent/test_anthropic_failures.py
skill/test_manifest.py
judge/test_own_problem.py
emulator/test_planted_faults.py
emulator/tensor_cores/test_tcgen05.py
patterns/test_movement.py
examples/test_fetch_http.py
""".split()


LEAST_CASES = 3  # of a test function that --part leaves cases out of


def pytest_addoption(parser: pytest.Parser) -> None:
    about = f"of each test function with {LEAST_CASES} or more slow cases every Nth alone, from the Kth on"
    parser.addoption("--part", metavar="K/N", default="1/1", type=_read_part, help=about)


def _read_part(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} names no part: write K/N with K from 1 to N, such as 2/4")
    return int(part), int(parts)


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config.option, "loadscopereorder"):  # of pytest-xdist: files by the number of their tests, not by time
        config.option.loadscopereorder = False
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in its background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # else tests that interrupt a process interrupt none
    _begin_at_another_part(config)


def _begin_at_another_part(config: pytest.Config) -> None:
    """Of several processes each collects another part first: it rewrites that one's assertions for the others too."""
    worker, count = (int(os.environ.get(f"PYTEST_XDIST_WORKER{name}", "0").strip("gw")) for name in ("", "_COUNT"))
    if worker and [Path(argument).resolve() for argument in config.args] == [ROOT / "tests"]:
        files = sorted(str(path) for path in (ROOT / "tests").rglob("test_*.py"))
        begin = len(files) * worker // count
        config.args[:] = files[begin:] + files[:begin]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _leave_out_of_samples(items)
    _keep_part(config, items)
    places = {name: place for place, name in enumerate(LONGEST)}
    files = {item: item.nodeid.partition("::")[0] for item in items}
    items.sort(key=lambda item: (places.get(files[item].removeprefix("tests/"), len(LONGEST)), files[item]))
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not _has_gpu():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))


def _leave_out_of_samples(items: list[pytest.Item]) -> None:
    """Mark `slow` all but every nth case of each test function marked `sampled(n)`."""
    counts: dict[str, int] = {}
    for item in items:
        mark = item.get_closest_marker("sampled")
        if mark and not item.get_closest_marker("slow"):
            function = item.nodeid.partition("[")[0]
            count = counts[function] = counts.get(function, -1) + 1
            if count % mark.args[0]:
                item.add_marker(pytest.mark.slow)


def _keep_part(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the slow cases that are of other parts."""
    part, parts = config.getoption("--part")
    slow = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if item.get_closest_marker("slow"):
            slow[item.nodeid.partition("[")[0]].append(item)
    many = [cases for cases in slow.values() if len(cases) >= LEAST_CASES]
    others = {id(case) for cases in many for place, case in enumerate(cases) if place % parts != part - 1}
    config.hook.pytest_deselected(items=[item for item in items if id(item) in others])
    items[:] = [item for item in items if id(item) not in others]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Nothing of 5000 tests and what they import is garbage: it is not looked at, neither meanwhile nor later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000)  # compilers make many objects: at 700 the search for garbage takes 5 % of a test
        gc.enable()


_warned: list[str] = []


def pytest_warning_recorded(warning_message: warnings.WarningMessage, nodeid: str) -> None:
    """Count what `filterwarnings = error` misses: the DSL resets the filters while it compiles."""
    _warned.append(f"{nodeid}: {warning_message.message}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _warned and session.exitstatus == pytest.ExitCode.OK and not hasattr(session.config, "workerinput"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print("\nThe run fails by these warnings, though each test passed:", *_warned, sep="\n  ", file=sys.stderr)


def _has_gpu() -> bool:
    import torch  # only where a marked test was collected: it takes seconds

    return torch.cuda.is_available()


@pytest.fixture
def write_file(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes text to a file in the test's folder and gives its path."""

    def write(text: str, name: str = "kernel.py") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def run_script() -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that runs `scripts/NAME.py ARGUMENTS…` in another folder and gives its output and exit code.

    Its workers come from the fork server of this process, in which PyTorch and the DSL are imported once for all tests.
    """
    from cutesmith.sandbox.shared_fork_server import lend_fork_server

    def run(name: str, *arguments: str | Path, cwd: str | Path = "/", timeout: float = 100, env=os.environ, **options):
        command = [sys.executable, ROOT / "scripts" / f"{name}.py", *arguments]
        told = {"capture_output": True, "text": True, "timeout": timeout, **options}
        with lend_fork_server() as (variables, descriptors):
            return subprocess.run(command, cwd=cwd, env={**env, **variables}, pass_fds=descriptors, **told)

    return run


NEIGHBOUR = """
import torch
memory = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
print("busy", flush=True)
while True:
    memory.add_(1)
    torch.cuda._sleep(2_000_000)
    torch.empty(1 << 27, dtype=torch.uint8, device="cuda")
    torch.cuda.empty_cache()
"""


@pytest.fixture
def crowded_gpu():
    """Nine other processes that compute on the GPU and allocate there."""
    busy = [subprocess.Popen([sys.executable, "-c", NEIGHBOUR], stdout=subprocess.PIPE) for _ in range(9)]
    try:
        assert all(process.stdout is not None and process.stdout.readline() for process in busy)
        yield
    finally:
        for process in busy:
            process.kill()
            process.communicate()
