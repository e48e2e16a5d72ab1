"""Example records made for the tests of fetch: small, with true hashes."""

from __future__ import annotations

from cutesmith.examples.fetch.sources import sha256_of
from cutesmith.examples.index.records import Example

COMMIT = "7107b05535f8977f5ecb9d01ee203205b1fd9bc4"
ROOT = "examples/python/CuTeDSL"
TEXT = b"import torch\n\n# an example\n" * 40


def cutlass(name: str = "hopper/dense_gemm", data: bytes = TEXT, **changes: object) -> Example:
    fields: dict = {
        "id": f"cutlass/{name}",
        "title": name,
        "operation": "gemm",
        "arch": ("sm_90a",),
        "dtypes": ("float16",),
        "features": (),
        "source": "cutlass",
        "repository": "NVIDIA/cutlass",
        "version": COMMIT,
        "path": f"{ROOT}/cute/{name}.py",
        "sha256": sha256_of(data),
        "lines": data.count(b"\n"),
        "summary": "",
        "lesson": "",
        "symbols": (),
    }
    return Example(**fields | changes)
