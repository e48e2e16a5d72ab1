"""The table of the DSL's names: what it knows, how it is kept, and what happens without the DSL; the command."""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cutesmith.commands.lint import main
from cutesmith.lint.suggestions import KNOWN
from cutesmith.lint.symbols import DISTRIBUTION, SymbolTable, carried_table, load_symbols

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def symbols() -> SymbolTable:
    return load_symbols()


def test_every_deprecation_of_the_package_is_known(symbols):
    """The package declares over 80, at over 100 names; each text says so."""
    table = symbols.table
    texts = set(table["deprecated"].values()) | {call["text"] for call in table["deprecated_calls"]}
    assert len(table["deprecated"]) >= 100 and len(texts) >= 70
    assert all(text for text in texts)
    assert symbols.environment.deprecated["KEEP_PTX"] == "ptx"
    assert {"ptx", "cubin", "sass"} <= set(symbols.environment.keep)
    assert {"ARCH", "KEEP", "DUMP_DIR", "ENABLE_TVM_FFI"} <= set(symbols.environment.variables)


def test_replacements_that_are_names_exist(symbols):
    """A suggestion that is one dotted name must itself resolve, without being deprecated."""
    for wrong, right in KNOWN.items():
        assert not symbols.resolve(wrong).found, f"{wrong} exists after all"
        if all(part.isidentifier() for part in right.split(".")):
            dotted = right.replace("cute.", "cutlass.cute.", 1) if right.startswith("cute.") else right
            resolution = symbols.resolve(dotted)
            assert resolution.found and not resolution.deprecations, f"{wrong} -> {right}"


def test_the_table_agrees_with_the_package(symbols):
    """Every public name of the modules that kernels use, as a real import sees it."""
    code = (
        "import json, cutlass, cutlass.cute, cutlass.pipeline, cutlass.utils;"
        "print(json.dumps({m.__name__: [n for n in dir(m) if not n.startswith('_')] for m in"
        " (cutlass, cutlass.cute, cutlass.cute.arch, cutlass.cute.math, cutlass.pipeline, cutlass.cute.nvgpu)}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for module, names in json.loads(done.stdout.splitlines()[-1]).items():
        assert len(names) > 10
        assert [name for name in names if not symbols.resolve(f"{module}.{name}").found] == []


@pytest.fixture
def another_version(tmp_path, monkeypatch) -> str:
    """A version of the DSL that no table is carried of; its modules are those that are installed."""
    (metadata := tmp_path / "other" / f"{DISTRIBUTION.replace('-', '_')}-4.9.77.dist-info").mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: 4.9.77\n")
    monkeypatch.setenv("PYTHONPATH", str(metadata.parent))
    return "4.9.77"


def lint(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "lint_kernel.py"), *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd="/", env={**os.environ, **environment}, check=False
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="classes have other names of Python's own elsewhere")
def test_the_carried_table_is_what_a_walk_gives(tmp_path, write_file):
    """Of the version that is installed here; a cold cache folder stays empty."""
    carried = carried_table(importlib.metadata.version(DISTRIBUTION))
    subprocess.run([sys.executable, "-m", "cutesmith.lint.symbol_walk", str(tmp_path / "walked.json")], check=True)
    assert gzip.decompress(carried.read_bytes()) == (tmp_path / "walked.json").read_bytes()
    kernel = write_file("import cutlass\ncutlass.nothing\n")
    assert lint(kernel, XDG_CACHE_HOME=str(tmp_path / "cache")).returncode == 3
    assert not (tmp_path / "cache").exists()


@pytest.mark.slow
def test_a_table_is_built_once_and_kept(tmp_path, write_file, another_version):
    """Of another version a cold cache folder is filled, and left alone from then on."""
    kernel = write_file("import cutlass\ncutlass.nothing\n")
    cold = lint(kernel, "--json", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert json.loads(cold.stdout)["exit_code"] == 3
    (table,) = (tmp_path / "cache" / "cutesmith").iterdir()
    assert table.name.startswith(f"symbols-{another_version}-")
    kept = table.stat().st_mtime_ns
    assert lint(kernel, XDG_CACHE_HOME=str(tmp_path / "cache")).returncode == 3
    assert table.stat().st_mtime_ns == kept
    wait_for_another(kernel, table, tmp_path / "second" / "cutesmith")


def wait_for_another(kernel: Path, table: Path, folder: Path) -> None:
    """Lint waits for the process that fills the folder, this one, and takes its table as it is."""
    folder.mkdir(parents=True)
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder.parent)}
    command = [sys.executable, str(ROOT / "scripts" / "lint_kernel.py"), str(kernel)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd="/", env=environment) as waiting:
        deadline = time.monotonic() + 60
        while not any(path == folder for path in opened_by(waiting.pid)):
            assert waiting.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        (there := folder / table.name).write_bytes(table.read_bytes())
        before = there.stat()
        os.close(descriptor)
    assert waiting.returncode == 3
    assert (there.stat().st_ino, there.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def opened_by(pid: int) -> list[Path]:
    found = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            found.append(path.readlink())
    return found


def test_without_the_dsl_the_other_rules_still_run(write_file):
    """A Python that has no site-packages: CS002 says that names were not checked, CS201 still finds its trap."""
    kernel = write_file(
        "import cutlass.cute as cute\n@cute.kernel\n"
        "def k(n: cute.Int32):\n    if n > 3:\n        return\n    cute.nothing()\n"
    )
    script = str(ROOT / "scripts" / "lint_kernel.py")
    done = subprocess.run(
        [sys.executable, "-S", script, str(kernel), "--json"], capture_output=True, text=True, check=False
    )
    found = {finding["rule"] for finding in json.loads(done.stdout)["findings"]}
    assert done.returncode == 3 and {"CS002", "CS201"} <= found and "CS101" not in found


@pytest.fixture
def lint_here(capsys):
    """A function that runs the command in this process and gives its exit code, stdout and stderr."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        code = main([*map(str, arguments)])
        return code, *capsys.readouterr()

    return run


def test_the_command_prints_a_table_and_json(write_file, lint_here):
    kernel = write_file("import cutlass\nx = cutlass.float32\n")
    code, table, _ = lint_here(kernel)
    assert code == 3
    assert f"{kernel}:2:5: error CS101" in table and "cutlass.Float32" in table
    verdict = json.loads(lint_here(kernel, "--json")[1])
    assert verdict["stage"] == "lint" and verdict["status"] == "lint" and verdict["path"] == str(kernel)
    assert verdict["findings"][0]["rule"] in ("CS101", "CS501")


def test_exit_codes_of_the_command(write_file, tmp_path, lint_here):
    assert lint_here(write_file("x = 1\n", "good.py"))[0] == 0
    code, table, _ = lint_here(write_file("x = \n", "broken.py"))
    assert code == 2 and "broken.py" in table
    assert lint_here(tmp_path / "missing.py", "--json")[0] == 2
    code, _, diagnostics = lint_here()
    assert code == 2 and diagnostics and "Traceback" not in diagnostics


def test_the_rules_are_listed(lint_here):
    code, everything, _ = lint_here("--rules")
    assert code == 0 and "CS201" in everything and "fix:" in everything
    one = json.loads(lint_here("--rules", "cs301", "--json")[1])["rules"]
    assert [rule["id"] for rule in one] == ["CS301"] and one[0]["bad"] and one[0]["good"]
    assert lint_here("--rules", "CS999")[0] == 2


def test_help_teaches(lint_here):
    _, text, _ = lint_here("--help")
    assert "ignore[" in text and "exit codes" in text and "--rules" in text
