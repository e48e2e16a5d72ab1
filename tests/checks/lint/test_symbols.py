"""The table of the DSL's names: what it knows, how it is kept, and what happens without the DSL; the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cutesmith.checks.lint.suggestions import KNOWN
from cutesmith.checks.lint.symbols import SymbolTable, load_symbols

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def symbols() -> SymbolTable:
    return load_symbols()


def test_every_deprecation_of_the_package_is_known(symbols):
    """The package declares over 80, at over 100 names; each text says so."""
    table = symbols.table
    texts = set(table["deprecated"].values()) | {call["text"] for call in table["deprecated_calls"]}
    assert len(table["deprecated"]) >= 100 and len(texts) >= 70
    assert all(text for text in texts)
    assert symbols.environment["deprecated"]["KEEP_PTX"] == "ptx"
    assert {"ptx", "cubin", "sass"} <= set(symbols.environment["keep"])
    assert {"ARCH", "KEEP", "DUMP_DIR", "ENABLE_TVM_FFI"} <= set(symbols.environment["variables"])


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


def lint(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "lint_kernel.py"), *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd="/", env={**os.environ, **environment}, check=False
    )


def test_a_table_is_built_once_and_kept(tmp_path, write_file):
    """A cold cache folder is filled, and left alone from then on."""
    kernel = write_file("import cutlass\ncutlass.nothing\n")
    cold = lint(kernel, "--json", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert json.loads(cold.stdout)["exit_code"] == 3
    (table,) = (tmp_path / "cache" / "cutesmith").iterdir()
    kept = table.stat().st_mtime_ns
    assert lint(kernel, XDG_CACHE_HOME=str(tmp_path / "cache")).returncode == 3
    assert table.stat().st_mtime_ns == kept


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


def test_the_command_prints_a_table_and_json(write_file):
    kernel = write_file("import cutlass\nx = cutlass.float32\n")
    table = lint(kernel)
    assert table.returncode == 3
    assert f"{kernel}:2:5: error CS101" in table.stdout and "cutlass.Float32" in table.stdout
    verdict = json.loads(lint(kernel, "--json").stdout)
    assert verdict["stage"] == "lint" and verdict["status"] == "lint" and verdict["path"] == str(kernel)
    assert verdict["findings"][0]["rule"] in ("CS101", "CS501")


def test_exit_codes_of_the_command(write_file, tmp_path):
    assert lint(write_file("x = 1\n", "good.py")).returncode == 0
    broken = lint(write_file("x = \n", "broken.py"))
    assert broken.returncode == 2 and "broken.py" in broken.stdout
    assert lint(tmp_path / "missing.py", "--json").returncode == 2
    nothing = lint()
    assert nothing.returncode == 2 and "Traceback" not in nothing.stderr


def test_the_rules_are_listed():
    everything = lint("--rules")
    assert everything.returncode == 0 and "CS201" in everything.stdout and "fix:" in everything.stdout
    one = json.loads(lint("--rules", "cs301", "--json").stdout)["rules"]
    assert [rule["id"] for rule in one] == ["CS301"] and one[0]["bad"] and one[0]["good"]
    assert lint("--rules", "CS999").returncode == 2


def test_help_teaches():
    text = lint("--help").stdout
    assert "ignore[" in text and "exit codes" in text and "--rules" in text
