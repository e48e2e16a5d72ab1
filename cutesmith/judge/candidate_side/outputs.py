"""What `kernel_fn` returned, held against what the judge knows of it: types, poison, who wrote it and when."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from cutesmith.errors import ContractError
from cutesmith.judge.transfer.tensors import bytes_of, poisoned_elements
from cutesmith.verdicts import Mechanism, Rule, Violation

FEW_CONSTANTS = 4
SAMPLED_ELEMENTS = 1 << 16

same_bytes = torch.equal  # captured before any candidate is loaded


def take_outputs(returned: Any) -> tuple[list[torch.Tensor], list[Violation]]:
    """The tensors of what `kernel_fn` returned, which must be exactly a tensor or a tuple of tensors.

    Raises ContractError for anything else; a tensor subclass is a violation (rule T3).
    """
    values = list(returned) if type(returned) is tuple else [returned]
    for value in values:
        if not isinstance(value, torch.Tensor):
            raise ContractError(
                f"kernel_fn returned {_kind(returned)}, not a tensor or a tuple of tensors",
                hint="Allocate the outputs with torch.empty, launch, and return them.",
            )
    lazy = [type(value).__name__ for value in values if type(value) is not torch.Tensor]
    if lazy:
        text = f"kernel_fn returned a tensor subclass ({lazy[0]}), which may compute later"
        return [], [Violation(Rule.T3, Mechanism.EXACT_TYPES, text)]
    return values, []


def plain_tensors(returned: Any) -> list[torch.Tensor]:
    """The tensors among what was returned, without subclasses: touching those may run code of theirs."""
    values = returned if type(returned) is tuple else (returned,)
    return [value for value in values if type(value) is torch.Tensor]


def sample_of(output: torch.Tensor) -> torch.Tensor:
    """Bytes of elements all over the output, soon had: a whole copy takes as long as the work that it is to catch."""
    flat = output.detach().reshape(-1) if output.is_contiguous() else output.detach()[:1].reshape(-1)
    return bytes_of(flat[:: max(1, flat.numel() // SAMPLED_ELEMENTS)])


def written_late(
    outputs: Sequence[torch.Tensor], samples: Sequence[torch.Tensor], copies: Sequence[torch.Tensor]
) -> list[Violation]:
    """Outputs that changed after the current stream had done what `kernel_fn` queued on it (rule T1)."""
    found = []
    for index, (output, sample, copy) in enumerate(zip(outputs, samples, copies)):
        if not (same_bytes(sample_of(output), sample) and same_bytes(bytes_of(output), copy)):
            text = f"output {index} was written after the work of its stream had ended: join every stream that you use"
            found.append(Violation(Rule.T1, Mechanism.STREAM_ORDER, text))
    return found


def appeared(index: int, output: torch.Tensor, usual: torch.Tensor, poison: int) -> list[Violation]:
    """Elements that hold neither poison nor one of a few constants although no kernel ran (rule W2)."""
    size, now = output.element_size(), bytes_of(output)
    elements = now.view(-1, size)[~poisoned_elements(output, poison)]
    if elements.shape[0] == 0 or bool((elements == elements[0]).all()):
        return []
    values = torch.unique(elements, dim=0).shape[0]
    if values <= FEW_CONSTANTS and not same_bytes(now, usual):
        return []
    count = f"{elements.shape[0]} elements of output {index}"
    text = f"{count} have values without its launches: they do not come from the CuTe kernel"
    return [Violation(Rule.W2, Mechanism.STUBBED_LAUNCHES, text)]


def never_written(runs: Sequence[Sequence[torch.Tensor]]) -> int:
    """How many elements hold their run's poison in every run; by chance an element, above all a byte, does in one.

    `runs` are the `poisoned_elements` of each output; those of other shapes than the first run's are left out.
    """
    sizes = [[output.numel() for output in run] for run in runs]
    equal = [run for run, size in zip(runs, sizes) if size == sizes[0]]
    return sum(int(functools.reduce(torch.logical_and, masks).sum()) for masks in zip(*equal))


def written_too_early(runs: Sequence[Sequence[torch.Tensor]]) -> list[bool]:
    """Of each run, whether its outputs hold nothing but poison although those of another run do not (rule T1).

    Memory is poisoned on the current stream: what a launch wrote that did not wait for it is gone. `runs` are the
    `poisoned_elements` of each output.
    """
    empty = [any(mask.numel() for mask in run) and all(bool(mask.all()) for mask in run) for run in runs]
    return [here and not all(empty) for here in empty]


def _kind(returned: Any) -> str:
    if isinstance(returned, (tuple, list)):
        return f"a {type(returned).__name__} of {', '.join(type(item).__name__ for item in returned) or 'nothing'}"
    return "None" if returned is None else f"{type(returned).__name__} {returned!r:.40}"
