"""Stands in for Triton on machines without it: QuACK's autotuner imports it, the kernels run here do not use it."""

from types import SimpleNamespace

runtime = SimpleNamespace(cache=SimpleNamespace(FileCacheManager=object))
testing = SimpleNamespace()
