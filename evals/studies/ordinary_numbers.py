"""Losses, optimisers, images and physics that were not tuned for: cases of `bench_patterns.py`.

They were written down before any of them was drafted, and are not chosen by how fast they are.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F  # noqa: N812
from ordinary_networks import ordinary_case
from pattern_cases import Case, single
from races import Tensor

Values = torch.Tensor


def adamw(p: Values, g: Values, m: Values, v: Values) -> tuple[Values, ...]:
    """AdamW."""
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return p * (1 - 1e-4) - 1e-3 * (m / (1 - 0.9**10)) / ((v / (1 - 0.999**10)).sqrt() + 1e-8), m, v


def focal_loss(x: Values, y: Values) -> Values:
    """Focal loss."""
    y = (y > 0).to(x.dtype)
    p = torch.sigmoid(x)
    ce = F.binary_cross_entropy_with_logits(x, y, reduction="none")
    pt = p * y + (1 - p) * (1 - y)
    return ((0.25 * y + 0.75 * (1 - y)) * (1 - pt) ** 2 * ce).mean()


def kl_distill(s: Values, t: Values) -> Values:
    """Distillation."""
    return F.kl_div(F.log_softmax(s / 2, -1), F.log_softmax(t / 2, -1), reduction="batchmean", log_target=True) * 4


def info_nce(a: Values, b: Values) -> Values:
    """InfoNCE."""
    a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    logits = a @ b.t() / 0.07
    return F.cross_entropy(logits, torch.arange(a.shape[0], device=a.device))


def triplet(a: Values, p: Values, n: Values) -> Values:
    """Triplet loss."""
    return F.triplet_margin_loss(a, p, n, margin=0.3)


def dice(x: Values, y: Values) -> Values:
    """Dice loss."""
    p = x.softmax(1)
    inter = (p * y).sum((0, 2, 3))
    return 1 - (2 * inter / (p.sum((0, 2, 3)) + y.sum((0, 2, 3)) + 1e-6)).mean()


def of_losses() -> Iterator[Case]:
    """Losses, and a step of an optimiser."""
    yield ordinary_case("AdamW", adamw, *[Tensor((4096, 4096), single)] * 3, Tensor((4096, 4096), single, 0.0))
    yield ordinary_case("focal loss", focal_loss, *[Tensor((64, 80, 100, 100), single)] * 2)
    yield ordinary_case("distillation", kl_distill, *[Tensor((4096, 32000))] * 2)
    yield ordinary_case("InfoNCE", info_nce, *[Tensor((4096, 512), single)] * 2)
    yield ordinary_case("triplet loss", triplet, *[Tensor((65536, 256), single)] * 3)
    yield ordinary_case("Dice loss", dice, *[Tensor((16, 21, 256, 256), single)] * 2)


def ema(x: Values, alpha: Values) -> Values:
    """Moving average."""
    alpha = alpha.abs()
    out = [x[:, 0]]
    for t in range(1, x.shape[1]):
        out.append(alpha * x[:, t] + (1 - alpha) * out[-1])
    return torch.stack(out, 1)


def nms_iou(a: Values) -> Values:
    """Overlaps of boxes, above the diagonal."""
    a = a.sort(-1).values
    area = (a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1])
    lt = torch.maximum(a[:, None, :2], a[None, :, :2])
    rb = torch.minimum(a[:, None, 2:], a[None, :, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[..., 0] * wh[..., 1]
    return (inter / (area[:, None] + area[None] - inter) > 0.5).triu(1)


def knn(q: Values, db: Values) -> tuple[Values, ...]:
    """Nearest of 16384."""
    d = torch.cdist(q, db)
    return tuple(d.topk(10, largest=False))


def bilinear_up(x: Values) -> Values:
    """Bilinear, twice the size."""
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


def sobel(x: Values, k: Values) -> Values:
    """Sobel."""
    gradients = F.conv2d(x, k, padding=1)
    return (gradients.square().sum(1, keepdim=True) + 1e-6).sqrt()


def gaussian_blur(x: Values, k: Values) -> Values:
    """Gaussian blur."""
    k = k.softmax(0)
    c = x.shape[1]
    x = F.conv2d(F.pad(x, (3, 3, 0, 0), mode="reflect"), k.view(1, 1, 1, 7).expand(c, 1, 1, 7), groups=c)
    return F.conv2d(F.pad(x, (0, 0, 3, 3), mode="reflect"), k.view(1, 1, 7, 1).expand(c, 1, 7, 1), groups=c)


def hsv(x: Values) -> Values:
    """HSV."""
    r, g, b = x[:, 0], x[:, 1], x[:, 2]
    top, low = x.amax(1), x.amin(1)
    d = top - low + 1e-8
    h = torch.where(top == r, (g - b) / d % 6, torch.where(top == g, (b - r) / d + 2, (r - g) / d + 4)) / 6
    return torch.stack((h, d / (top + 1e-8), top), 1)


def stft_mag(x: Values, window: Values) -> Values:
    """Spectrogram."""
    frames = x.unfold(-1, 512, 128) * window
    f = torch.fft.rfft(frames, dim=-1)
    return torch.log1p(f.abs())


def mel(power: Values, mel: Values) -> Values:
    """Mel bands."""
    power = power.square()
    return torch.log(torch.clamp(mel @ power, min=1e-10))


def physics(u: Values) -> Values:
    """Heat equation."""
    lap = torch.roll(u, 1, 0) + torch.roll(u, -1, 0) + torch.roll(u, 1, 1) + torch.roll(u, -1, 1) - 4 * u
    return u + 0.1 * lap


def nbody(x: Values, m: Values) -> Values:
    """N bodies."""
    d = x[None] - x[:, None]
    r2 = (d * d).sum(-1) + 1e-3
    return (m[None, :, None] * d * r2[..., None] ** -1.5).sum(1)


def black_scholes(s: Values, k: Values, t: Values, v: Values) -> Values:
    """Black-Scholes."""
    s, k, t, v = (each.abs() + 0.5 for each in (s, k, t, v))
    d1 = (torch.log(s / k) + (0.02 + v * v / 2) * t) / (v * t.sqrt())
    d2 = d1 - v * t.sqrt()
    return s * 0.5 * (1 + torch.erf(d1 / 2**0.5)) - k * torch.exp(-0.02 * t) * 0.5 * (1 + torch.erf(d2 / 2**0.5))


def of_numbers() -> Iterator[Case]:
    """Pairs, images, waves, physics, finance."""
    yield ordinary_case("moving average", ema, Tensor((64, 256, 512), single), Tensor((512,), single, 0.3))
    yield ordinary_case("overlaps of boxes, above the diagonal", nms_iou, Tensor((4096, 4), single))
    yield ordinary_case("nearest of 16384", knn, Tensor((1024, 128), single), Tensor((16384, 128), single))
    yield ordinary_case("bilinear, twice the size", bilinear_up, Tensor((16, 64, 128, 128)))
    yield ordinary_case("Sobel", sobel, Tensor((64, 1, 512, 512), single), Tensor((2, 1, 3, 3), single))
    yield ordinary_case("Gaussian blur", gaussian_blur, Tensor((16, 3, 512, 512), single), Tensor((7,), single))
    yield ordinary_case("HSV", hsv, Tensor((32, 3, 512, 512), single))
    yield ordinary_case("spectrogram", stft_mag, Tensor((16, 160000), single), Tensor((512,), single))
    yield ordinary_case("mel bands", mel, Tensor((32, 201, 3000), single), Tensor((80, 201), single))
    yield ordinary_case("heat equation", physics, Tensor((8192, 8192), single))
    yield ordinary_case("n bodies", nbody, Tensor((4096, 3), single), Tensor((4096,), single))
    yield ordinary_case("Black-Scholes", black_scholes, *[Tensor((16777216,), single, 0.1)] * 4)


PARTS = (of_losses, of_numbers)
