"""The least time of an emulated launch on the products of its architecture: bytes at a known rate, the busiest pipe."""

from __future__ import annotations

from cutesmith.devices import parse_arch
from cutesmith.profiling.requests import Emulated
from cutesmith.timing.roofline import RATES
from cutesmith.verdicts import Prediction

MODELLED = 90  # the SM version whose pipes the emulated GPU's profile models
PRODUCTS = tuple(rates.product.lower() for rates in RATES if rates.sm == MODELLED)


def predictions_of(reply: Emulated, arch: str) -> tuple[Prediction, ...]:
    """For each product whose rates are known; none of several launches, or without a profile."""
    profiles = [launch.profile for launch in reply.launches]
    if len(profiles) != 1 or profiles[0] is None or not reply.tensor_bytes or parse_arch(arch).sm.number != MODELLED:
        return ()
    return tuple(
        Prediction(
            product=rates.product,
            bytes_per_second=rates.bytes_per_second,
            source=rates.source,
            memory_us=round(1e6 * reply.tensor_bytes / rates.bytes_per_second, 4),
            pipe_us=profiles[0].floor_us,
            times=round(reply.shrunk, 3),
        )
        for rates in RATES
        if rates.sm == MODELLED
    )
