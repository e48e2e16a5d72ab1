"""Cases of `bench_patterns.py` from training, beside torch.compile: gradients by `torch.func`, and optimisers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from pattern_cases import Case, single
from races import Function, Tensor
from torch.func import vjp

Values = torch.Tensor


def gradients(function: Function, *given: Values) -> tuple[Values, ...]:
    """Those of all inputs, from that of the result, which is the last of `given`."""
    *inputs, of_result = given
    return vjp(function, *inputs)[1](of_result)


def gradient(function: Function, *given: Values) -> Values:
    """That of the first input; the last of `given` is that of the result."""
    first, *others, of_result = given
    return vjp(lambda x: function(x, *others), first)[1](of_result)[0]


def _case(name: str, function: Function, *arguments: Tensor, all_inputs: bool = True) -> Case:
    """Of a function and its inputs, the last of which is the gradient of the result."""
    return Case(name, partial(gradients if all_inputs else gradient, function), arguments, 2, compiled="default")


def rms_norm(x: Values, w: Values) -> Values:
    """Over the last dimension."""
    return F.rms_norm(x, (x.shape[-1],), w, 1e-6)


def layer_norm(x: Values, w: Values, b: Values) -> Values:
    """Over the last dimension."""
    return F.layer_norm(x, (x.shape[-1],), w, b)


def batch_norm(x: Values, w: Values, b: Values) -> Values:
    """By the statistics of the batch, and ReLU."""
    return F.relu(F.batch_norm(x, None, None, w, b, training=True))


def gradients_of_norms() -> Iterator[Case]:
    """Of inputs, weights and biases."""
    for rows, columns in ((8192, 4096), (4096, 8192)):
        x, w = Tensor((rows, columns)), Tensor((columns,))
        yield _case(f"RMS norm, {rows} x {columns}", rms_norm, x, w, x)
        yield _case(f"layer norm, {rows} x {columns}", layer_norm, x, w, w, x)
    x, w = Tensor((8192, 2048)), Tensor((2048,))
    yield _case("layer norm, 8192 x 2048", layer_norm, x, w, w, x)
    x, w = Tensor((4, 2048, 32, 128)), Tensor((128,))
    yield _case("RMS norm of heads", rms_norm, x, w, x)
    x, w = Tensor((16, 256, 64, 64)), Tensor((256,))
    yield _case("group norm", lambda x, w, b: F.group_norm(x, 32, w, b), x, w, w, x)
    x, w = Tensor((64, 128, 56, 56), single), Tensor((128,), single)
    yield _case("batch norm and ReLU", batch_norm, x, w, w, x)


def rotated(x: Values, cos: Values, sin: Values) -> Values:
    """A rotary embedding by halves."""
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


def gated(x: Values, gate: Values, up: Values) -> Values:
    """SwiGLU."""
    return F.silu(x @ gate) * (x @ up)


def feed_forward(x: Values, w: Values, b: Values, w2: Values, b2: Values) -> Values:
    """Two layers with GELU between them."""
    return F.linear(F.gelu(F.linear(x, w, b)), w2, b2)


def cross_entropy(logits: Values, targets: Values) -> Values:
    """In float32."""
    return F.cross_entropy(logits.float(), targets)


def gradients_of_layers() -> Iterator[Case]:
    """Of layers of language models."""
    x = Tensor((8192, 4096))
    yield _case("softmax", lambda x: x.softmax(-1), x, x)
    heads, angles = Tensor((4, 32, 2048, 128)), Tensor((2048, 128))
    yield _case("rope", rotated, heads, angles, angles, heads, all_inputs=False)
    x, w, y = Tensor((2048, 2048)), Tensor((2048, 5632), scale=2048**-0.5), Tensor((2048, 5632))
    yield _case("SwiGLU", gated, x, w, w, y)
    x, w, w2 = Tensor((2048, 1024)), Tensor((4096, 1024), scale=1 / 32), Tensor((1024, 4096), scale=1 / 64)
    yield _case("feed forward", feed_forward, x, w, Tensor((4096,)), w2, Tensor((1024,)), x)
    logits, targets = Tensor((4096, 32000)), Tensor((4096,), torch.int64, below=32000)
    one = Tensor((), single)
    yield _case("cross entropy", cross_entropy, logits, targets, one, all_inputs=False)
    table, tokens = Tensor((32000, 1024), single), Tensor((4, 2048), torch.int64, below=32000)
    found = Tensor((4, 2048, 1024), single)
    yield _case("embedding", lambda table, tokens: F.embedding(tokens, table), table, tokens, found, all_inputs=False)


def gradients_of_attention() -> Iterator[Case]:
    """Of queries, keys and values, which PyTorch computes by its own kernels; grouped heads share keys."""
    attention = F.scaled_dot_product_attention
    for width in (64, 128):
        x = Tensor((4, 16, 4096, width))
        yield _case(f"attention, heads of {width}", attention, x, x, x, x)
        yield _case(f"causal attention, heads of {width}", partial(attention, is_causal=True), x, x, x, x)
    q, k = Tensor((4, 32, 2048, 128)), Tensor((4, 8, 2048, 128))
    yield _case("grouped causal attention", partial(attention, is_causal=True, enable_gqa=True), q, k, k, q)


def gradients_of_images() -> Iterator[Case]:
    """Of convolutions, pooling and interpolation."""
    x, y = Tensor((32, 64, 56, 56)), Tensor((32, 128, 56, 56))
    w = Tensor((128, 64, 3, 3), scale=1 / 24)
    yield _case("convolution 3 x 3", partial(F.conv2d, padding=1), x, w, Tensor((128,)), y)
    x, w = Tensor((32, 96, 56, 56)), Tensor((96, 1, 7, 7), scale=1 / 7)
    yield _case("depthwise 7 x 7", partial(F.conv2d, padding=3, groups=96), x, w, x)
    x, y = Tensor((32, 64, 112, 112), single), Tensor((32, 64, 56, 56), single)
    yield _case("maxima", lambda x: F.max_pool2d(x, 3, 2, 1), x, y)
    yield _case("means", lambda x: F.avg_pool2d(x, 3, 2, 1), x, y)
    x, y = Tensor((16, 64, 64, 64), single), Tensor((16, 64, 128, 128), single)
    yield _case("bilinear", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), x, y)


def adamw(p: Values, g: Values, m: Values, root: Values, step: Values) -> tuple[Values, Values, Values]:
    """Parameters and both moments after a step; `root` is that of the second moment."""
    count = step * step + 1
    m, v = m + (g - m) * 0.1, root * root * 0.999 + g * g * 0.001
    first, second = 1 - 0.9**count, 1 - 0.999**count
    return p * (1 - 1e-5) - 1e-3 / first * m / ((v / second).sqrt() + 1e-8), m, v


def muon(gradient: Values) -> Values:
    """Five steps of Newton and Schulz (Jordan et al. 2024)."""
    x = gradient.bfloat16()
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x


def clipped(*of_parameters: Values) -> tuple[Values, ...]:
    """Gradients whose norm together is at most 1."""
    total = torch.stack([each.float().square().sum() for each in of_parameters]).sum().sqrt()
    scale = (1.0 / (total + 1e-6)).clamp(max=1.0)
    return tuple((each * scale).to(each.dtype) for each in of_parameters)


def optimisers() -> Iterator[Case]:
    """Steps of optimisers."""
    p = Tensor((4096, 4096), single)
    yield Case("AdamW", adamw, (p, p, p, p, Tensor((), single)), 2, compiled="default")
    yield Case("Muon", muon, (Tensor((2048, 4096), single),), 2, compiled="default", tolerance=5e-2)
    some = Tensor((4096, 4096)), Tensor((4096, 1024)), Tensor((4096,))
    yield Case("clipped by norm", clipped, some, 2, compiled="default")


PARTS: tuple[Callable[[], Iterator[Case]], ...] = (
    gradients_of_norms, gradients_of_layers, gradients_of_attention, gradients_of_images, optimisers,
)  # fmt: skip
