"""The installed DSL behaves as the rules say: each bad example fails with that error, each good one compiles.

One child process compiles every example for sm_90a on fake tensors; no GPU is needed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from cutesmith.lint import RULES

EXPECTED = {  # rule -> what the error of its bad example says
    "CS101": "make_fragment",
    "CS106": "astype",
    "CS201": "UNSUP_EARLY_EXIT",
    "CS202": "'break' outside loop",
    "CS203": "'x' is not defined",
    "CS204": "SCOPE_CLOSURE_CAPTURE",
    "CS205": "UNSUP_LOOP_ELSE",
    "CS206": "TYPE_UNSTABLE_JOIN",
    "CS208": "PHASE_DYNAMIC_INDEX",
    "CS212": "TYPE_UNSTABLE_JOIN",
    "CS209": "PHASE_DYNAMIC_TO_STATIC_BOOL",
    "CS301": "Type mismatch, store Float32",
    "CS302": "must have the same dtype, but got Float16 and Int32",
    "CS306": "invariant_load is not allowed",
    "CS404": "Can't deduce the leading dimension",
    "CS405": "Struct element only support",
    "CS407": "CALL_KERNEL_TARGET",
    "CS408": "UNSUP_NO_SOURCE",
    "CS420": "LAUNCH_NEVER_ISSUED",
    "CS421": "LAUNCH_OUTSIDE_JIT",
    "CS422": "unexpected keyword argument",
    "CS438": "issubclass() arg 1 must be a class",
}
DRIVE = {  # what runs an example that is not a whole kernel
    "CS404": "one()",
    "CS405": "Storage.__sizeof__",
    "CS407": "compiled(FAKE)",
    "CS408": "cute.compile(host, FAKE)",
    "CS420": "cute.compile(host, FAKE)",
    "CS421": "kernel_fn(FAKE) if 'kernel_fn' in globals() else cute.compile(host, FAKE)",
    "CS422": "cute.compile(host, FAKE)",
    "CS438": "cute.compile(host, FAKE)",
}
CHILD = """
import importlib.util, json, sys, traceback
import cutlass, cutlass.cute as cute

def drive_kernel(module):
    import inspect
    tensors = [p for p in inspect.signature(module.kernel).parameters]
    module.FAKE2 = module.FAKE
    names = ["n" if name == "n" else "mX" for name in tensors]
    code = "import cutlass, cutlass.cute as cute\\nfrom {0} import kernel\\n@cute.jit\\n" \\
        "def drive(mX: cute.Tensor, n: cutlass.Int32):\\n    kernel({1}).launch(grid=[1, 1, 1], block=[32, 1, 1])\\n"
    path = module.__file__.replace(".py", "_host.py")
    open(path, "w").write(code.format(module.__name__, ", ".join(names)))
    host = load(module.__name__ + "_host", path)
    cute.compile(host.drive, module.FAKE, cutlass.Int32(3))

def load(name, path, **values):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    module.__dict__.update(values)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module

def run(name, path, drive):
    fake = cute.runtime.make_fake_compact_tensor(cutlass.Float16, (64,), assumed_align=16)
    try:
        module = load(name, path, FAKE=fake)
        eval(drive, module.__dict__) if drive else drive_kernel(module)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return ""

jobs = json.load(open(sys.argv[1]))
json.dump({name: run(name, path, drive) for name, path, drive in jobs}, open(sys.argv[2], "w"))
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict[str, str]:
    """The error of every example ("" when it compiled), by `RULE_bad` and `RULE_good`."""
    folder = tmp_path_factory.mktemp("traps")
    jobs = []
    for rule in EXPECTED:
        for which in ("bad", "good"):
            path = folder / f"{rule}_{which}.py"
            path.write_text(RULES[rule].example(which), encoding="utf-8")
            jobs.append((path.stem, str(path), DRIVE.get(rule, "")))
    (folder / "child.py").write_text(CHILD)
    (folder / "jobs.json").write_text(json.dumps(jobs))
    command = [sys.executable, str(folder / "child.py"), str(folder / "jobs.json"), str(folder / "out.json")]
    environment = {**os.environ, "CUTE_DSL_ARCH": "sm_90a"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, str] = json.loads((folder / "out.json").read_text())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("rule", EXPECTED)
def test_the_dsl_refuses_the_bad_example(rule, outcomes):
    assert EXPECTED[rule] in outcomes[f"{rule}_bad"]


@pytest.mark.slow
@pytest.mark.parametrize("rule", EXPECTED)
def test_the_dsl_compiles_the_good_example(rule, outcomes):
    assert outcomes[f"{rule}_good"] == ""
