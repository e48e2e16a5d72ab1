"""Windows over an image as TMA reads them, by im2col: what a tensor map can say of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from cutesmith.patterns.contraction.analysis import ContractionProblem, Matrix, Seen
from cutesmith.patterns.contraction.tma import TMA_BYTES, tma_reaches
from cutesmith.patterns.graph.attributes import TensorCode
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.graph.window_attributes import Windows

MOST_STEPS = 8
"""Elements from a window to the next."""

MOST_BEGIN = {2: 128, 3: 16}
"""Elements that a window over so many dimensions begins outside of the image at most; it reaches twice as far."""


def obstacles_of_windows(problem: ContractionProblem, seen: Seen) -> Iterator[str]:
    """What a tensor map of windows over an image cannot say (CUDA driver API, cuTensorMapEncodeIm2col)."""
    windows = seen.windows
    groups = len(problem.batch) - 1
    if windows.rank not in MOST_BEGIN or groups > 1 or len(problem.product.inputs[0].shape) != 2 + groups:
        yield "windows are those over two or three dimensions, with weights that all images share"
        return
    most, reaches = MOST_BEGIN[windows.rank], [abs(reach) for reach in windows.reaches]
    if windows.is_spread:
        yield "there are places between the elements that windows see"
    if max(windows.step) > MOST_STEPS or max(reaches) >= 2 * most:
        yield f"windows step by more than {MOST_STEPS}, or reach further than {2 * most - 1}"
    if any(not -most < first <= 0 or not -most <= last < most for first, last in windows.corners):
        yield "windows begin or end too far outside of the image"


def copied_of_windows(problem: ContractionProblem, seen: Seen) -> list[Matrix | Seen]:
    """Weights and image, where TMA cannot read them: channels lie side by side, in lines that begin where TMA can."""
    windows, channels = seen.windows, seen.shape[-1 - seen.windows.rank]
    in_place = windows.taps_first and channels * ITEM_BYTES[problem.a.dtype] % TMA_BYTES == 0
    in_place = (in_place or math.prod(windows.taps) == 1) and tma_reaches(problem.a)
    weights: list[Matrix | Seen] = [] if in_place else [problem.a]
    return weights + ([] if _channels_reach(seen) else [seen])


def lies_in_place(problem: ContractionProblem, moved: bool) -> bool:
    """Whether TMA reads and writes a convolution's tensors where they lie, for all sizes that the problem names.

    `moved`: launches before or after the product copy factors or results.
    """
    seen = problem.b
    return isinstance(seen, Seen) and not (moved or problem.graph.free_sizes) and _channels_reach(seen, ones=True)


def _channels_reach(seen: Seen, ones: bool = False) -> bool:
    """Whether the channels of an image lie side by side, and TMA can read them; `ones`: by strides of sizes 1, too."""
    at = len(seen.shape) - 1 - seen.windows.rank
    others = [step for dim, step in enumerate(seen.strides) if dim != at and (ones or seen.shape[dim] != 1)]
    follow = at == 1 or seen.strides[0] == seen.shape[1] * seen.strides[1]  # groups are read as images are
    return follow and seen.strides[at] == 1 and all(s * ITEM_BYTES[seen.dtype] % TMA_BYTES == 0 for s in others)


def weights_by_channels(code: TensorCode, windows: Windows) -> TensorCode:
    """The weights of windows as TMA reads them, (…, outputs, channels, taps)."""
    count, dims = math.prod(windows.taps), ", ".join(map(str, range(2, 2 + windows.rank)))
    if windows.taps_first and code.steps[:1] == (f"{{0}}.permute(0, {dims}, 1)",) and len(code.steps) == 2:
        return TensorCode(code.name, (f"{{0}}.view(*{{0}}.shape[:2], {count})",))  # channels need not be put last
    last = windows.taps_first or count == 1  # TMA reads a step of one tap too
    by_channels = f"({count}, -1)).transpose(-2, -1)" if last else f"(-1, {count}))"
    return code.then(f"{{0}}.unflatten(-1, {by_channels}")


def can_join(problem: ContractionProblem) -> bool:
    """Whether images may follow each other in tiles: what the epilogue reads is the same at all positions."""
    epilogue = problem.epilogue
    same = all(operand.rank <= 2 and not operand.varies[-1] for operand in epilogue.operands)
    one_group = isinstance(problem.b, Seen) and len(problem.batch) == 1
    return one_group and problem.n > 1 and same and not epilogue.coordinates


def im2col_context(windows: Windows | None) -> dict[str, Any]:
    """Names of the templates whose kernels read windows: what a tensor map is told, and where an element is."""
    if windows is None:
        return {"whd": None, "tap_places": ""}
    return {"whd": _im2col(windows), "tap_places": ", ".join(_places(windows.taps))}


def _places(taps: Sequence[int]) -> Iterator[str]:
    """Where the window's element number `tap` is along each dimension, the last one first."""
    before = 1
    for at, count in enumerate(taps[::-1]):
        place = f"tap // {before}" if before > 1 else "tap"
        yield place if at == len(taps) - 1 else f"{place} % {count}"
        before *= count


def _im2col(windows: Windows) -> dict[str, tuple[int, ...]]:
    """What a tensor map is told of windows, the last dimension of the image first."""
    corners, reaches = windows.corners[::-1], windows.reaches[::-1]
    return {
        "first": tuple(first for first, _ in corners),
        "last": tuple(last for _, last in corners),
        "before": tuple(-first for first, _ in corners),
        "after": tuple(last + abs(reach) for (_, last), reach in zip(corners, reaches, strict=True)),
        "step": windows.step[::-1],
        "first_tap": tuple(max(0, -reach) for reach in reaches),
        "dilation": windows.dilation[::-1],
    }
