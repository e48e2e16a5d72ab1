"""Words of records and queries: tokens, stems, and what says nothing (standard library only)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

STOPWORDS = frozenset(
    """a about all also am an and any are as at be but by can code cute cutedsl cutlass do does dsl each example
    examples f fast find for from get give good gpu gpus has have help how i if im implement implementation
    in into is it its just kernel kernels like look looking make me my need nn nvidia of on one or our out
    over per please pytorch reference run runs running sample show so some something start starting such
    than that the their them then there this to try trying two up us use used uses using via want we what
    when where which while who will with without work would write writing you your""".split()
)
"""Words that tell nothing apart: English ones, and those that hold for every example."""

SHORT = {
    "attn": "attention",
    "bwd": "backward",
    "dequant": "dequantize",
    "fwd": "forward",
    "matmul": "gemm",
    "matmuls": "gemm",
    "mcast": "multicast",
    "mm": "gemm",
    "multiplication": "gemm",
    "multiplies": "gemm",
    "multiply": "gemm",
    "ptr": "pointer",
    "quant": "quantize",
    "resadd": "residual",
    "warpspec": "specialized",
}
"""Short forms and other names, written out in records and queries."""

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SUFFIX = re.compile(r"(?:ations?|tions?|ings?|ers?|ed|es|s|e)$")
_IZE = re.compile(r"is(?=(?:e|ed|es|ing|ation|ations|er)$)")


def tokens(text: str) -> list[str]:
    """Lower-case words of letters and digits, short forms written out."""
    return [SHORT.get(word, word) for word in re.findall(r"[a-z0-9]+", text.lower())]


def parts(name: str) -> list[str]:
    """The words inside a CamelCase name: `HopperGEMMKernel` is hopper, gemm, kernel."""
    return tokens(_HUMP.sub(" ", name))


@cache
def stem(word: str) -> str:
    """The word without its ending (`quantised`, `quantization` → `quantiz`); short words and codes stay."""
    if len(word) <= 4 or any(c.isdigit() for c in word):
        return word[:-1] if word.endswith("s") and len(word) == 4 and word[-2] != "s" else word
    base = _SUFFIX.sub("", _IZE.sub("iz", word), count=1)
    return base if len(base) >= 3 else word


def stems(words: Iterable[str]) -> list[str]:
    """The stems of words that tell something apart."""
    return [stem(word) for word in words if word not in STOPWORDS]
