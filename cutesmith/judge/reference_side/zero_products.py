"""Which results depend on whether products of zeros that carry nothing are multiplied.

Such zeros lie around the inputs of a convolution (`convolution_taps`) and are the weights of masked keys
(`masked_keys`). One kernel multiplies them, so that Inf or NaN on the other side gives NaN; another leaves them out.
Both are right: where they differ, NaN passes and so does the value without those products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cutesmith.errors import UnavailableError
from cutesmith.judge.reference_side.convolution_taps import ByTaps
from cutesmith.judge.reference_side.masked_keys import ByMaskedKeys
from cutesmith.judge.reference_side.precision import in_float64
from cutesmith.judge.transfer.tensors import copy_of, finite


@dataclass(frozen=True, eq=False)
class OpenElements:
    """Which elements of a result are another special value with the products of zeros, and its values without them."""

    places: torch.Tensor  # bool, of the result's shape
    without: torch.Tensor  # float64


def open_elements(function: Callable[..., Any], values: Sequence[Any]) -> list[OpenElements | None]:
    """Those of each result; None where a result has none.

    The list is empty without a convolution and without masked keys, for finite inputs, and where a result cannot be
    computed so.
    """
    if all(bool(finite(value).all()) for value in values if _is_float(value)):
        return []
    taps, keys = ByTaps(multiplies=True), ByMaskedKeys(multiplies=True)
    multiplied = _results(function, values, taps, keys)
    if not (taps.replaced or keys.replaced):
        return []
    left_out = ByTaps(multiplies=not taps.replaced), ByMaskedKeys(multiplies=not keys.replaced)
    return [_differing(*pair) for pair in zip(multiplied, _results(function, values, *left_out))]


def _results(function: Callable[..., Any], values: Sequence[Any], taps: ByTaps, keys: ByMaskedKeys) -> list[Any]:
    try:
        with taps, keys:
            returned = in_float64(function, [copy_of(value) for value in values])
    except UnavailableError:
        raise
    except Exception:  # noqa: BLE001 - not every operation exists in float64
        return []
    return list(returned) if isinstance(returned, (tuple, list)) else [returned]


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _differing(multiplied: Any, without: Any) -> OpenElements | None:
    if not _is_float(multiplied) or multiplied.shape != without.shape:
        return None
    special = ~(multiplied.isfinite() & without.isfinite())
    differ = special & (multiplied != without) & ~(multiplied.isnan() & without.isnan())
    return OpenElements(differ, without) if bool(differ.any()) else None
