"""What the reference decides by: numbers that it compares with and clamps to, and functions whose ties are open."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from cutesmith.sandbox.dispatch_modes import LightMode

MOST_NUMBERS = 8
IGNORE_INDEX = -100  # of cross_entropy and nll_loss, where nothing else is asked for
_COMPARING = frozenset(
    "eq ne lt le gt ge __eq__ __ne__ __lt__ __le__ __gt__ __ge__ clamp clamp_ clip clip_ clamp_min clamp_max hardtanh "
    "threshold relu6 hardshrink softshrink hardswish hardsigmoid isclose masked_fill".split()
)
_WITHIN: dict[str, tuple[float, ...]] = {  # the numbers that a function's name stands for
    "relu6": (0.0, 6.0),
    "hardswish": (-3.0, 3.0),
    "hardsigmoid": (-3.0, 3.0),
    "hardtanh": (-1.0, 1.0),
    "hardshrink": (0.5,),
    "softshrink": (0.5,),
}
_IGNORING = frozenset({"cross_entropy", "nll_loss"})
# PyTorch leaves open which of equal elements' places they give; of sort and argsort unless stable=True.
_OPEN_TIES = frozenset("topk sort argsort kthvalue median nanmedian mode".split())
# And these, which of several elements for one place they keep.
_OPEN_REPEATS = frozenset(
    "scatter scatter_ index_put index_put_ index_copy index_copy_ put put_ __setitem__ masked_scatter".split()
)
# Kernels scale to powers of two before they subtract a maximum, which holds while scores are below 2^24.
_EXPONENTIALS = frozenset(
    "exp exp_ exp2 exp2_ expm1 softmax softmin log_softmax logsumexp logaddexp logaddexp2 logcumsumexp cross_entropy "
    "scaled_dot_product_attention multi_head_attention_forward gumbel_softmax".split()
)
_SORTED_INPUTS = frozenset("bucketize searchsorted".split())
_CASTING = frozenset("to int long short char byte type type_as".split())
# Operations (of aten, in place or not) that refuse no values, neither on a CPU nor by an assertion of a GPU's kernel.
_TAKES_ANY_VALUE = frozenset(
    "_adaptive_avg_pool2d _adaptive_avg_pool3d _batch_norm_impl_index _batch_norm_no_update _log_softmax "
    "_native_batch_norm_legit_no_training _reshape_alias _safe_softmax _scaled_dot_product_cudnn_attention "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention "
    "_scaled_dot_product_flash_attention_for_cpu _softmax _to_copy _unsafe_view abs add addcdiv addcmul addmm "
    "alias amax amin arange as_strided avg_pool1d avg_pool2d avg_pool3d baddbmm bitwise_not bmm cat chunk clamp "
    "clamp_max clamp_min clone constant_pad_nd convolution copy cos cudnn_batch_norm cudnn_convolution cumsum "
    "detach elu empty empty_like empty_strided eq erf exp exp2 expand expm1 fill flip full full_like ge gelu gt "
    "hardsigmoid hardswish hardtanh le leaky_relu lift_fresh linalg_vector_norm linear linspace log log1p log2 "
    "logical_and logical_not logical_or lt masked_fill max_pool2d_with_indices max_pool3d_with_indices maximum "
    "mean minimum mish mm mul native_batch_norm native_group_norm native_layer_norm ne neg new_empty new_full "
    "new_zeros ones ones_like permute pow rand randn reciprocal reflection_pad2d relu repeat replication_pad2d "
    "roll rsqrt rsub scalar_tensor select sigmoid sign silu sin slice softplus split split_with_sizes sqrt "
    "squeeze stack std sub sum t tanh transpose tril triu unbind unfold uniform unsafe_split unsqueeze "
    "upsample_bilinear2d upsample_nearest2d var var_mean view where zero zeros zeros_like".split()
)
_DIVIDES = frozenset("div floor_divide fmod remainder".split())  # a CPU refuses to divide integers by 0


@dataclass
class Seen:
    """Numbers that float and integer tensors are compared with, and what PyTorch leaves open.

    `open_ties`: any of equal elements may come first. `open_repeats`: any of the elements for one place may stay.
    `sorted_inputs`: a function takes sorted values only. `exponentials`: of differences, perhaps. `undefined_cast`:
    NaN, or more than an integer type holds, was cast to it; there the CPU and a GPU differ. `largest`: bytes of the
    largest tensor that a function returned. `may_refuse`: an operation looks at values, and may refuse some.
    """

    floats: set[float] = field(default_factory=set)
    integers: set[int] = field(default_factory=set)
    open_ties: bool = False
    open_repeats: bool = False
    sorted_inputs: bool = False
    exponentials: bool = False
    undefined_cast: bool = False
    largest: int = 0
    may_refuse: bool = True


class TooLargeError(Exception):
    """A function returned a tensor of more bytes than may be held here."""


class Watching(TorchFunctionMode):  # type: ignore[misc,no-untyped-call,unused-ignore]
    """Within it, calls of torch's functions are listened to; TooLargeError for a tensor of more than `most` bytes."""

    def __init__(self, most: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.seen, self.most = Seen(), most

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _COMPARING:
            self._compared(name, args, (*args[1:], *named.values()))
        elif name in _IGNORING:
            self.seen.integers.add(int(named.get("ignore_index", IGNORE_INDEX)))
        self.seen.open_ties |= leaves_ties_open(name, named)
        self.seen.open_repeats |= name in _OPEN_REPEATS
        self.seen.sorted_inputs |= name in _SORTED_INPUTS
        self.seen.exponentials |= name in _EXPONENTIALS
        result = func(*args, **named)
        if isinstance(result, torch.Tensor):
            self._measured(result)
        if name in _CASTING and _is_undefined(args[0], result):
            self.seen.undefined_cast = True
        return result

    def _measured(self, result: torch.Tensor) -> None:
        try:
            with torch._C.DisableTorchFunction():
                size = result.untyped_storage().nbytes()
        except RuntimeError:  # a sparse tensor has none, nor has one that vmap sees
            return
        self.seen.largest = max(self.seen.largest, size)
        if self.most is not None and size > self.most:
            raise TooLargeError(f"the reference makes a tensor of {size / 1e6:,.0f} MB of it")

    def _compared(self, name: str, args: Sequence[Any], others: Sequence[Any]) -> None:
        numbers = [float(n) for n in map(_number, others) if n is not None] or list(_WITHIN.get(name, ()))
        is_float = bool(args) and isinstance(args[0], torch.Tensor) and args[0].is_floating_point()
        if is_float:
            self.seen.floats.update(numbers[:MOST_NUMBERS])
        else:
            self.seen.integers.update(int(number) for number in numbers[:MOST_NUMBERS] if number.is_integer())


def leaves_ties_open(name: str, named: Mapping[str, Any]) -> bool:
    """Whether a call of torch's function of that name, with such named arguments, may give any of equal elements."""
    return name in _OPEN_TIES and not named.get("stable")


def watch(reference_fn: Callable[..., Any], values: Sequence[Any]) -> Seen:
    """What is seen while the reference computes with copies of the inputs; it may raise what it likes."""
    with torch.no_grad(), Watching() as watching, Operations() as operations:
        reference_fn(*[value.clone() if isinstance(value, torch.Tensor) else value for value in values])
    seen: Seen = watching.seen
    seen.may_refuse = operations.may_refuse
    return seen


class Operations(LightMode):
    """Within it, operations are looked at: whether one of them may refuse values, or decides by them what comes next.

    Whatever its name, a function of torch is made of these; reading a number on the host is one, too.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.may_refuse = False

    def dispatched(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The operation's own result."""
        result, name = func(*args, **kwargs), func.overloadpacket.__name__.rstrip("_")
        divides = name in _DIVIDES and isinstance(result, torch.Tensor) and result.is_floating_point()
        self.may_refuse |= not (func.namespace == "aten" and (divides or name in _TAKES_ANY_VALUE))
        return result


def _is_undefined(value: torch.Tensor, cast: torch.Tensor) -> bool:
    """Whether a float tensor was cast to integers that cannot hold it."""
    if not isinstance(cast, torch.Tensor) or not value.is_floating_point() or cast.is_floating_point():
        return False
    if cast.dtype is torch.bool or cast.is_complex():
        return False
    limits = torch.iinfo(cast.dtype)
    return not bool(((value > limits.min - 1.0) & (value < limits.max + 1.0)).all())


def _number(value: Any) -> float | None:
    """A Python number, or a tensor of one element; None for anything else, and for what is not finite."""
    if isinstance(value, torch.Tensor):
        value = value.item() if value.numel() == 1 and not value.is_complex() else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < 1e30 else None
