"""Values for one input of each kind: what an optimiser takes for granted of random normal numbers is not so here.

Each function takes a tensor and its kind and returns another of the same shape, dtype and strides, drawn from torch's
global generator. Rows of one tensor carry different values where a case can hold several.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from cutesmith.judge.draws.kinds import Kind, Role, Structure

OFFSET = 1000.0
FAR = 2.0**31
TINY, LARGE = 2.0**-12, 64.0
SATURATED = (20.0, 100.0)  # exp2, tanh and sigmoid are at their ends there, exp is beyond float16
_SQUARES_ABOVE = {torch.float32: 2.0**66, torch.bfloat16: 2.0**66, torch.float16: 2.0**10}
_SQUARES_BELOW = {torch.float32: 2.0**-80, torch.bfloat16: 2.0**-80, torch.float16: 2.0**-13}
HALF_MOST = 2.0**14  # below the largest float16, with room for a sum
SMALL = 2.0**-5  # an input that is nowhere larger may be left out within tolerance
LEVELS = 4
FEW_VALUES = 16  # of a sorted input
LONGEST_RUN = 8
MANY = 512  # a scalar from here on may be a size: eight times that takes long


def offset(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """Everything moved far to one side."""
    return tensor + OFFSET


def negative_offset(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """Everything moved far below zero: a maximum that starts at 0 is wrong there."""
    return tensor - OFFSET


def far_above(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """Nothing but numbers beyond those that a search begins at, such as 1e9; float16 has none."""
    return tensor if tensor.dtype == torch.float16 else like(tensor, (tensor.abs() + 1) * FAR)


def far_below(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """The same below zero."""
    return tensor if tensor.dtype == torch.float16 else -far_above(tensor, kind)


def tiny(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """Everything close to zero."""
    return tensor * TINY


def large(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """Everything far from zero."""
    return tensor * LARGE


def squares_above(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """Everything so large that its squares are beyond the type that PyTorch computes with; not of float64."""
    return tensor * _SQUARES_ABOVE.get(tensor.dtype, 1.0)


def squares_below(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """Everything so small that its squares are 0 there; not of float64."""
    return tensor * _SQUARES_BELOW.get(tensor.dtype, 1.0)


def specials(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """NaN, Inf and -Inf at a few random places."""
    return planted(tensor, [float("nan"), float("inf"), -float("inf")], copies=3)


def not_numbers(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """NaN at one random place, at three of many: of a weight that makes a column NaN, of a scale all of its results."""
    return planted(tensor, [float("nan")], copies=3 if tensor.numel() > 64 else 1)


def planted(tensor: torch.Tensor, numbers: Iterable[float], *, copies: int) -> torch.Tensor:
    """The tensor with each number at so many random places."""
    changed = _copy(tensor)
    flat = changed.reshape(-1)
    for number in numbers:
        flat[torch.randint(flat.numel(), (copies,), device=flat.device)] = number
    return like(tensor, flat)


def zeros_scattered(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """Zeros of both signs in an eighth of the elements, every third row and one column of zeros."""
    changed = _copy(tensor)
    chance = torch.rand(changed.shape, device=changed.device)
    changed[chance < 1 / 8] = 0.0
    if not kind.bounded:
        changed[chance < 1 / 16] = -0.0
    if changed.ndim and changed.shape[-1] > 1:
        changed[..., int(torch.randint(changed.shape[-1], ()))] = 0.0
    if changed.ndim >= 2:
        changed.view(-1, changed.shape[-1])[::3] = 0.0
    return like(tensor, changed)


def zeros(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """Nothing but zeros."""
    return like(tensor, torch.zeros_like(tensor))


def ties(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """Few different values, in runs and scattered, and every fourth row of one value; all were there before."""
    flat = tensor.reshape(-1)
    levels = flat[torch.randint(flat.numel(), (LEVELS,), device=flat.device)]
    runs = torch.randint(LEVELS, (flat.numel() // LONGEST_RUN + 1,), device=flat.device).repeat_interleave(LONGEST_RUN)
    scattered = torch.randint(LEVELS, (flat.numel(),), device=flat.device)
    changed = levels[runs[: flat.numel()]].reshape(tensor.shape).contiguous()
    if tensor.ndim >= 2:
        rows, spread = changed.view(-1, tensor.shape[-1]), levels[scattered].view(-1, tensor.shape[-1])
        rows[1::2] = spread[1::2]
        rows[::4] = rows[::4, :1].clone()
    return like(tensor, changed)


def one_value(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """One of the elements everywhere."""
    flat = tensor.reshape(-1)
    return like(tensor, flat[torch.randint(flat.numel(), (), device=flat.device)].expand(tensor.shape))


def mixed_sizes(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """Elements of one row that differ by many powers of two; within the range of a bounded input."""
    powers = torch.randint(-16, 1 if kind.bounded else 7, tensor.shape, device=tensor.device)
    return like(tensor, tensor * torch.exp2(powers.float()).to(tensor.dtype))


def ends(tensor: torch.Tensor, kind: Kind, numbers: Sequence[float] = ()) -> torch.Tensor:
    """Scattered ends of what an input may be: of its range, else far out and around the `numbers` that decide.

    Of a bounded input some rows are nothing but one end; of one whose rows sum to 1 each has a single 1.
    """
    if kind.shares:
        places = torch.randint(tensor.shape[-1], (*tensor.shape[:-1], 1), device=tensor.device)
        return like(tensor, torch.zeros_like(tensor).scatter(-1, places, 1.0))
    if not kind.bounded:
        around = [end for number in numbers for end in (number, number - 1, number + 1, 2 * number, -number)]
        chosen = [sign * far for far in SATURATED for sign in (1, -1)] + [n for n in around if abs(n) < HALF_MOST]
        return planted(tensor, chosen, copies=max(1, tensor.numel() // (8 * len(chosen))))
    changed = planted(tensor, [kind.low, kind.high], copies=max(1, tensor.numel() // 8))
    if tensor.ndim >= 2:
        rows = changed.reshape(-1, tensor.shape[-1])
        rows[::4], rows[1::4] = kind.low, kind.high
        changed = rows.view(tensor.shape)
    return like(tensor, changed)


def redrawn(tensor: torch.Tensor, kind: Kind, *, positive: bool = False) -> torch.Tensor:
    """The input without its structure, within its range; one value everywhere tells no range: then normal numbers.

    `positive`: above zero in any case, for a reference that takes nothing else.
    """
    if kind.role is Role.BOOLEAN:
        return masked(tensor, kind)
    if kind.role is Role.INTEGER:
        return _redrawn_integers(tensor, kind)
    if kind.structure in (Structure.TWO_VALUES, Structure.TRIANGLE):
        return _of_other_values(_shuffled(tensor), kind)
    if kind.structure is Structure.SORTED:
        return _shuffled(tensor)
    if kind.bounded:
        fresh = kind.low + (kind.high - kind.low) * torch.rand(tensor.shape, device=tensor.device)
    elif positive:
        fresh = 0.5 + torch.rand(tensor.shape, device=tensor.device)
    else:
        fresh = torch.randn(tensor.shape, device=tensor.device)
    return like(tensor, fresh)


def _of_other_values(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """Other finite values for those of a mask: between its ends, else normal ones; -Inf stays."""
    fresh = torch.randn(tensor.shape, device=tensor.device)
    if kind.bounded and kind.low < kind.high:
        fresh = kind.low + (kind.high - kind.low) * torch.rand(tensor.shape, device=tensor.device)
    return like(tensor, torch.where(tensor.isfinite(), fresh.to(tensor.dtype), tensor))


def _redrawn_integers(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """One value everywhere tells no range: then some above it too, for a reference that takes them."""
    if kind.structure in (Structure.SORTED, Structure.TRIANGLE, Structure.TWO_VALUES, Structure.PERMUTATION):
        return _shuffled(tensor)
    low, high = sorted((min(0, int(kind.low)), int(kind.high)))
    high += 3 if kind.structure is Structure.CONSTANT and high < 4 else 0
    return like(tensor, torch.randint(low, high + 1, tensor.shape, device=tensor.device))


def between_its_ends(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """Sorted values with the first and the last that were there; lengths that sum to what they did.

    For borders and lengths of parts, which a reference takes in no other form; some parts are empty.
    """
    flat = tensor.reshape(-1)
    if kind.role is Role.BOOLEAN or flat.numel() < 2:
        return tensor
    if kind.structure in (Structure.SORTED, Structure.SEQUENCE):
        chosen = torch.randint(flat.numel(), (flat.numel() - 2,), device=flat.device)
        return like(tensor, torch.cat([flat[:1], flat[chosen].sort().values, flat[-1:]]))
    if kind.role is not Role.INTEGER or kind.low < 0:
        return tensor
    total = int(flat.sum())
    cuts = torch.randint(total + 1, (flat.numel() - 1,), device=flat.device).sort().values
    ends = torch.tensor([0], device=flat.device), torch.tensor([total], device=flat.device)
    return like(tensor, torch.cat([ends[0], cuts, ends[1]]).diff())


def in_its_order(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """Sorted rows of few of the values that were there, between the first and the last: most parts are empty."""
    if not tensor.ndim:
        return tensor
    count, rows = tensor.shape[-1], tensor.shape[:-1]
    few = torch.randint(count, (*rows, FEW_VALUES), device=tensor.device)
    again = torch.randint(FEW_VALUES, (*rows, max(0, count - 2)), device=tensor.device)
    chosen = few.gather(-1, again).sort(-1).values
    return like(tensor, torch.cat([tensor[..., :1], tensor.gather(-1, chosen), tensor[..., -1:]], -1)[..., -count:])


def permuted(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """The same values in another order."""
    return like(tensor, _shuffled(tensor))


def in_order(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """Other values in ascending rows."""
    moved = tensor + torch.rand(tensor.shape, device=tensor.device) if tensor.is_floating_point() else tensor + 1
    return like(tensor, moved.sort(-1).values)


def infinite_runs(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """-Inf in the first part of half of the rows and in the last part of others: scores under a mask."""
    changed = _copy(tensor)
    if not changed.ndim or changed.shape[-1] < 2:
        return tensor
    rows = changed.view(-1, changed.shape[-1])
    borders = torch.randint(1, rows.shape[1], (rows.shape[0], 1), device=rows.device)
    places = torch.arange(rows.shape[1], device=rows.device).expand(rows.shape)
    first = torch.arange(rows.shape[0], device=rows.device)[:, None] % 2 == 0
    rows[torch.where(first, places < borders, places >= borders)] = -torch.inf
    return like(tensor, changed)


def halves(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """Whole numbers and halves between -8 and 8, where rounding decides."""
    return like(tensor, torch.randint(-16, 17, tensor.shape, device=tensor.device) / 2)


def same_beginning(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """The first half of the elements as it is, the second backwards: ends, sums and a beginning tell no difference."""
    flat = _copy(tensor).view(-1)
    half = flat.numel() // 2
    return like(tensor, torch.cat([flat[:half], flat[half:-1].flip(0), flat[-1:]]))


def _shuffled(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of each row in another order."""
    order = torch.rand(tensor.shape, device=tensor.device).argsort(-1)
    return like(tensor, tensor.gather(-1, order))


def integer_ends(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """The least and the largest that was drawn, one value in long repeats, and some rows of nothing else."""
    low, high = int(kind.low), int(kind.high)
    flat = _copy(tensor).reshape(-1)
    chance = torch.rand(flat.shape, device=flat.device)
    flat[chance < 0.7] = flat[torch.randint(flat.numel(), (1,), device=flat.device)].clone()
    flat[chance < 0.4], flat[chance < 0.2] = low, high
    return like(tensor, flat)


def one_integer(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """One of the integers everywhere: a count of it is as large as a count can be."""
    return one_value(tensor, kind)


def negative_integers(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """Nothing but integers below zero, of a signed type: a largest one that starts at 0 is wrong there."""
    if not tensor.dtype.is_signed:
        return tensor
    most = max(2, min(int(kind.high), torch.iinfo(tensor.dtype).max))
    return like(tensor, -torch.randint(1, most + 1, tensor.shape, device=tensor.device))


def negative_indices(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """Half of the indices counted from the end, the last as -1; of a permutation each names the place that it did."""
    size = int(kind.high) + 1
    if not tensor.dtype.is_signed or size > torch.iinfo(tensor.dtype).max:
        return tensor
    from_the_end = (torch.rand(tensor.shape, device=tensor.device) < 0.5) & (tensor >= 0)
    return like(tensor, torch.where(from_the_end, tensor - size, tensor))


def close_integers(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """Large integers that differ by little: equal in float32, or in float64 those of 64 bits."""
    base = min(2**53, torch.iinfo(tensor.dtype).max - 4) if tensor.element_size() == 8 else 2**24
    base = min(base, torch.iinfo(tensor.dtype).max - 4)
    return like(tensor, base + torch.randint(4, tensor.shape, device=tensor.device))


def whole_range(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """Integers from all over the dtype, sums of which leave 2^31 and 2^24 behind."""
    limits = torch.iinfo(tensor.dtype)
    return like(tensor, torch.randint(limits.min, limits.max, tensor.shape, device=tensor.device, dtype=tensor.dtype))


def beyond_labels(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """Integers a few times larger than any drawn: a reference that uses them as indices refuses them."""
    high = min(torch.iinfo(tensor.dtype).max - 1, 4 * max(int(kind.high), 0) + 7)
    return like(tensor, torch.randint(int(kind.low), high + 1, tensor.shape, device=tensor.device))


def masked(tensor: torch.Tensor, kind: Kind, share: float = 0.5) -> torch.Tensor:
    """A random mask; the diagonal of a matrix is set, so that no row of a mask for attention is empty."""
    mask = torch.rand(tensor.shape, device=tensor.device) < share
    if mask.ndim >= 2 and kind.structure is Structure.TRIANGLE:
        mask.diagonal(dim1=-2, dim2=-1).fill_(True)
    return like(tensor, mask)


def single(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    """One element set of each row, and none in every third row."""
    if not tensor.ndim:
        return torch.ones_like(tensor)
    places = torch.randint(tensor.shape[-1], (*tensor.shape[:-1], 1), device=tensor.device)
    mask = torch.zeros(tensor.shape, dtype=torch.bool, device=tensor.device).scatter(-1, places, True)
    mask.view(-1, tensor.shape[-1])[2::3] = False
    return like(tensor, mask)


def filled(tensor: torch.Tensor, kind: Kind, *, value: bool) -> torch.Tensor:
    """All of a mask set, or none."""
    return like(tensor, torch.full_like(tensor, value))


def special_integers(tensor: torch.Tensor, kind: Kind, *, numbers: Sequence[int]) -> torch.Tensor:
    """Numbers that the reference compares with, each in many places."""
    limits = torch.iinfo(tensor.dtype)
    fitting = [number for number in numbers if limits.min <= number <= limits.max]
    return planted(tensor, fitting, copies=max(1, tensor.numel() // (4 * len(fitting)))) if fitting else tensor


def other_scalar(value: float, kind: Kind, *, number: int) -> float:
    """One of the other values of a Python scalar."""
    return scalar_values(value)[number]


def scalar_values(value: float) -> list[float]:
    """Other values of a Python scalar: a fraction, the other sign, 0, 1, a large one; the other of two booleans.

    Multiples of a whole number, as a number of groups has to divide the channels.
    """
    if isinstance(value, bool):
        return [not value]
    others: tuple[float, ...]
    if isinstance(value, int):
        many = 8 * value if abs(value) < MANY else 2 * value
        others = (value + 1, 2 * value, many, -value, 0, 1, value + 33)
    else:
        others = (0.7 * value + 1 / 3, -value, 0.0, 1.0, 8.0 * value + 3.0)
    return [other for other in dict.fromkeys(others) if other != value]


def like(model: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Values in a tensor with the dtype and the strides of the model."""
    return torch.empty_like(model, memory_format=torch.preserve_format).copy_(values.reshape(model.shape))


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)
