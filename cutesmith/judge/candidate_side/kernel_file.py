"""A kernel file in a process: the device brought up, the text held, `kernel_fn` loaded, and what it raises told."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from cutesmith.emulator.faults import KernelFault
from cutesmith.errors import CandidateError, ContractError, CutesmithError, UnavailableError
from cutesmith.judge.candidate_side.host_branches import with_marks
from cutesmith.problems import contract
from cutesmith.problems.loading import load_file
from cutesmith.sandbox.failures import describe_failure
from cutesmith.verdicts import Mechanism


def start_device(device: str) -> None:
    """Import the DSL and create the CUDA context while that is still allowed.

    Raises UnavailableError when the DSL is not installed.
    """
    if device == "cpu":
        return
    for name in ("cutlass", "cutlass.cute"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise UnavailableError(
                f"the CuTe DSL cannot be imported: {error}", hint="pip install nvidia-cutlass-dsl"
            ) from error
    with contextlib.suppress(ImportError):
        importlib.import_module("tvm_ffi")
    if device == "cuda":
        torch.full((1,), 1.0, device="cuda")
        torch.cuda.synchronize()


def synchronize(device: str) -> None:
    """Wait for the whole device, so that a fault shows here and not in the next step."""
    if device == "cuda":
        _cuda_synchronize()


_cuda_synchronize = torch.cuda.synchronize


def hold_text(source: str, name: str, number: int = 0) -> Path:
    """Hold a kernel file's text for `load_kernel`, under a path that does not tell why it is run (rule H3).

    There is no such file. `number` keeps apart several files of one process.
    """
    path = Path.cwd() / str(number) / name
    contract.hold(path, source)
    return path


def load_kernel(path: Path, *, marked: bool = False) -> Callable[..., Any]:
    """`kernel_fn` of a file from which reference and inputs have been removed; `marked`: its branches are noted."""
    rewrite = with_marks if marked else None
    return load_file(path, strip=contract.PROBLEM_NAMES, with_problem=True, rewrite=rewrite).kernel_fn


@contextlib.contextmanager
def candidate_code(path: Path) -> Iterator[None]:
    """Whatever the candidate raises becomes a CandidateError with its line; broken contracts pass through."""
    try:
        yield
    except (CandidateError, UnavailableError):
        raise
    except ContractError as error:
        if error.__cause__ is None:
            raise
        raise describe_failure(path, error.__cause__) from error
    except KernelFault as error:
        mechanism, text, fault = Mechanism.EMULATED_SANITIZER, error.describe(path), error.cause.kind
        raise CandidateError(text, error.exit_code, hint=error.hint, mechanism=mechanism, fault=fault) from error
    except CutesmithError as error:  # the emulated GPU's own: they say what is wrong, and their exit code is theirs
        mechanism = Mechanism.EXCEPTION
        raise CandidateError(error.message, error.exit_code, hint=error.hint, mechanism=mechanism) from error
    except (Exception, SystemExit) as error:
        raise describe_failure(path, error) from error
