"""A kernel sees the same of its process while it is verified and while it is timed (rule H3)."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

import seeing_handlers
import torch

from cutesmith.judge.transfer.tensors import Guarded, write_value
from cutesmith.sandbox.readable import INPUTS
from cutesmith.sandbox.worker import Limits, Worker
from cutesmith.timing.entries import import_for_gpu

ROOT = Path(__file__).parents[2]
PATHS = [str(ROOT), str(ROOT / "tests" / "handlers"), *(entry for entry in sys.path if entry.endswith("site-packages"))]

LOOKS_ROUND = """
import builtins, gc, json, os, resource, signal, sys, threading, warnings
from pathlib import Path
import torch


def tensor(value):
    storage = value.untyped_storage()
    return [value.storage_offset(), storage.nbytes(), value.stride(), value._version, value.requires_grad,
            value.data_ptr() % 64, type(value).__name__, str(value.device)]


def opened():
    found = []
    for number in range(64):
        try:
            found.append([number, os.fstat(number).st_mode])
        except OSError:
            pass
    return found


def kernel_fn(x):
    seen = {
        "modules": sorted(name for name in sys.modules if not name.startswith("cutesmith_file_")),
        "environment": dict(os.environ), "argv": sys.argv, "folder": os.getcwd(), "file": __file__,
        "name": __name__[:-8],
        "builtins": sorted(vars(builtins)), "path": sys.path, "flags": list(sys.flags), "gc": gc.isenabled(),
        "threads": threading.active_count(), "depth_limit": sys.getrecursionlimit(),
        "limits": [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT")],
        "signals": [str(signal.getsignal(number)) for number in signal.valid_signals()], "opened": opened(),
        "grad": [torch.is_grad_enabled(), torch.is_inference_mode_enabled()], "dtype": str(torch.get_default_dtype()),
        "torch_threads": torch.get_num_threads(), "input": tensor(x), "output": tensor(torch.empty_like(x)),
        "constant": tensor(torch.zeros_like(x)), "beside": os.path.exists(os.path.dirname(__file__)),
    }
    Path("seen.json").write_text(json.dumps(seen))
    return torch.empty_like(x)
"""


def begun(folder, kind):
    """A worker of this kind that has been asked to call the kernel."""
    scratch, inputs = folder / "candidate", folder / INPUTS
    for made in (scratch, inputs):
        made.mkdir(parents=True)
    kernel = folder / f"{kind}-judged" / "kernel.py"
    kernel.parent.mkdir()
    for path in (kernel, scratch / "source"):
        path.write_text(LOOKS_ROUND)
    environment = {"PYTHONPATH": os.pathsep.join(PATHS)}
    worker = Worker(
        getattr(seeing_handlers, kind),
        preload=(import_for_gpu,),
        limits=Limits(call_seconds=200),
        scratch=scratch,
        environment=environment,
    )
    worker.start()
    described = write_value(torch.randn(8, 4), inputs / "0")
    return worker, worker.send(seeing_handlers.CallKernel(str(kernel), (described,)))


def test_verification_and_benchmark_look_the_same_to_a_kernel(tmp_path):
    folders = {kind: tmp_path / kind for kind in ("verification", "benchmark")}
    workers = [begun(folder, kind) for kind, folder in folders.items()]
    seen = []
    for (worker, pending), folder in zip(workers, folders.values(), strict=True):
        with contextlib.closing(worker):
            pending.reply()
            seen.append(json.loads((folder / "candidate" / "seen.json").read_text().replace(str(folder), "HERE")))
    for one in seen:
        one["environment"].pop("WORKER_ID", None)  # random in every worker
    differing = {name for name in seen[0] if seen[0][name] != seen[1][name]}
    assert differing == set(), {name: [one[name] for one in seen] for name in differing}
    text = json.dumps({name: seen[0][name] for name in ("file", "folder", "environment", "argv", "name")})
    assert not [word for word in ("verif", "bench", "judged") if word in text]
    assert seen[0]["file"] == "HERE/candidate/0/kernel.py" and not seen[0]["beside"]


def test_a_guarded_tensor_has_the_storage_that_torch_would_give_it():
    for shape, stride in (((3, 4), (4, 1)), ((2, 3), (8, 2)), ((), ()), ((0, 4), (4, 1))):
        plain = torch.empty_strided(shape, stride, dtype=torch.bfloat16)
        guarded = Guarded(shape, stride, torch.bfloat16, "cpu")
        assert guarded.tensor.storage_offset() == 0
        assert guarded.tensor.untyped_storage().nbytes() == plain.untyped_storage().nbytes()
        guarded.tensor.fill_(1.0)
        assert guarded.zones.intact() and guarded.tensor._version == 1
        if plain.numel():
            assert not bool((guarded.raw[guarded.begin : guarded.begin + 2] == guarded.zones.poison).any())
