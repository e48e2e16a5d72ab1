"""What a forked worker renews, to be as if it had been started as a program of its own.

That is its environment, also as /proc shows it, and what Python and the libraries took from it when they started: the
import path, the temporary folder, the DSL's options, the number of threads, random state. What cannot be renewed is
shared by all workers of a fork server: the addresses of libraries and the seed of `hash(str)`. Both are of the process
that a candidate is in anyway, and tell nothing about values.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ENV_START, ENV_END = 47, 48  # fields 50 and 51 of /proc/PID/stat, counted from the state; see proc(5)


def renew(environment: Mapping[str, str], own_path: Sequence[str]) -> None:
    """Make this process one that was started in the current folder with `environment`.

    `own_path` is the import path without the current folder and PYTHONPATH. Raises OSError, and as `renew_dsl` does.
    """
    before = dict(os.environ)
    os.environ.clear()  # afterwards no pointer of the C library leads into the block that is overwritten
    os.environ.update(environment)
    _write_block(environment)
    sys.path[:] = import_path(os.getcwd(), environment, own_path)
    tempfile.tempdir = None
    renew_dsl()
    threads = environment.get("OMP_NUM_THREADS")
    if threads and threads != before.get("OMP_NUM_THREADS") and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(int(threads))
    # New seeds from the system; Python's own `random` takes one at every fork.
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()  # of the CPU alone: this must not ask for CUDA


def _write_block(environment: Mapping[str, str]) -> None:
    """Write the environment where /proc/PID/environ reads it: descendants of this process carry it too."""
    fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    start, end = int(fields[ENV_START]), int(fields[ENV_END])
    block = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items())
    if not 0 < len(block) <= end - start:
        raise OSError(f"an environment of {len(block)} bytes does not fit in {end - start}")
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, block, len(block))


def import_path(folder: str, environment: Mapping[str, str], own_path: Sequence[str]) -> list[str]:
    """What Python makes of a start in `folder` by `-m`: the folder, PYTHONPATH, and what it finds itself."""
    named = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return list(dict.fromkeys([folder, *named, *own_path]))


def renew_dsl() -> None:
    """Let the DSL read its environment again, which it does once, when it is imported.

    Raises AttributeError or KeyError where this release of the DSL keeps it elsewhere.
    """
    if "cutlass.base_dsl.dsl" not in sys.modules:
        return
    base = "cutlass.base_dsl."
    helpers, facts = sys.modules[base + "cache_helpers"], sys.modules[base + "pyir_class_facts"]
    for module in (helpers, sys.modules[base + "env_manager"]):
        for cached in [value for value in vars(module).values() if hasattr(value, "cache_clear")]:
            cached.cache_clear()
    vars(helpers)["default_generated_ir_path"] = helpers.get_default_generated_ir_path()
    facts._FACTS_CACHE_DIR[0] = None
    for dsl in sys.modules[base + "dsl"].DSLSingletonMeta._instances.values():
        dsl.envar = dsl._env_class(dsl.name)
        folder = os.path.join(helpers.get_default_generated_ir_path(dsl.envar.prefix), "pyir_class_facts")
        facts.configure_facts_cache(folder, enabled=not dsl.envar.disable_file_caching)
