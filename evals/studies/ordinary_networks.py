"""Layers of networks that were not tuned for: cases of `bench_patterns.py`.

They were written down before any of them was drafted, and are not chosen by how fast they are.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F  # noqa: N812
from pattern_cases import Case, single
from races import Function, Tensor

Values = torch.Tensor


def ordinary_case(name: str, function: Function, *arguments: Tensor) -> Case:
    """One of two configurations, beside torch.compile."""
    return Case(name, function, arguments, 2, compiled="default", tolerance=2e-2)


def int4_linear(x: Values, w: Values, scale: Values) -> Values:
    """Weights of 4 bits, 16 tokens."""
    low, high = (w & 15).to(torch.bfloat16) - 8, (w >> 4).to(torch.bfloat16) - 8
    full = torch.stack((low, high), -1).flatten(1)
    full = (full.view(full.shape[0], -1, 128) * scale[..., None]).flatten(1)
    return x @ full.t()


def int4_dequant(w: Values, scale: Values) -> Values:
    """Weights of 4 bits alone."""
    low, high = (w & 15).to(torch.bfloat16) - 8, (w >> 4).to(torch.bfloat16) - 8
    full = torch.stack((low, high), -1).flatten(1)
    return (full.view(full.shape[0], -1, 128) * scale[..., None]).flatten(1)


def moe_dense(x: Values, w1: Values, w2: Values, gate: Values) -> Values:
    """All experts."""
    gate = gate.softmax(-1)
    h = torch.einsum("td,edf->etf", x, w1)
    h = F.silu(h)
    y = torch.einsum("etf,efd->etd", h, w2)
    return torch.einsum("etd,te->td", y, gate)


def alibi(q: Values, k: Values, v: Values, slopes: Values) -> Values:
    """ALiBi attention."""
    slopes = slopes.abs()
    n = q.shape[2]
    i = torch.arange(n, device=q.device)
    bias = -(i[:, None] - i[None, :]).abs() * slopes[:, None, None]
    s = (q @ k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5 + bias
    s = s.masked_fill(i[None, :] > i[:, None], float("-inf"))
    return s.softmax(-1).to(v.dtype) @ v


def sliding(q: Values, k: Values, v: Values) -> Values:
    """Sliding window attention."""
    n = q.shape[2]
    i = torch.arange(n, device=q.device)
    near = (i[None, :] <= i[:, None]) & (i[:, None] - i[None, :] < 512)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=near)


def mla_absorbed(q: Values, kv: Values) -> Values:
    """Latent attention, one token."""
    s = torch.einsum("bhd,bnd->bhn", q, kv) * 576**-0.5
    p = s.float().softmax(-1).to(q.dtype)
    return torch.einsum("bhn,bnd->bhd", p, kv[..., :512])


def retention(q: Values, k: Values, v: Values, decay: Values) -> Values:
    """Retention."""
    decay = 0.9 + 0.1 * decay.sigmoid()
    n = q.shape[2]
    i = torch.arange(n, device=q.device)
    gap = (i[:, None] - i[None, :]).clamp(min=0)
    d = torch.where(i[:, None] >= i[None, :], decay[:, None, None] ** gap, 0.0)
    return ((q @ k.transpose(-1, -2)).float() * d).to(v.dtype) @ v


def llama_decode_mlp(x: Values, norm: Values, wg: Values, wu: Values, wd: Values) -> Values:
    """MLP of Llama, 4 tokens."""
    h = F.rms_norm(x, x.shape[-1:], norm, 1e-5)
    return x + (F.silu(h @ wg.t()) * (h @ wu.t())) @ wd.t()


def lm_head_ce(x: Values, w: Values, labels: Values) -> Values:
    """LM head and cross entropy."""
    return F.cross_entropy((x @ w.t()).float(), labels)


def rwkv_mix(x: Values, mk: Values, mv: Values, wk: Values, wv: Values) -> Values:
    """Channel mix of RWKV."""
    prev = F.pad(x, (0, 0, 1, -1))
    k = (x * mk + prev * (1 - mk)) @ wk.t()
    v = (x * mv + prev * (1 - mv)) @ wv.t()
    return torch.relu(k) ** 2 * v


def lru_rms(x: Values, a: Values) -> Values:
    """Sums of states and RMS norm."""
    h = torch.cumsum(x * a, 1)
    return F.rms_norm(h, h.shape[-1:])


def beam(logits: Values, score: Values) -> tuple[Values, ...]:
    """Beams."""
    p = F.log_softmax(logits.float(), -1) + score[..., None]
    return tuple(p.flatten(1).topk(8))


def of_language_models() -> Iterator[Case]:
    """Quantised weights, experts, attention and what stands around it."""
    yield ordinary_case(
        "weights of 4 bits, 16 tokens",
        int4_linear,
        Tensor((16, 4096)),
        Tensor((4096, 2048), torch.uint8, below=256),
        Tensor((4096, 32), scale=0.01),
    )
    yield ordinary_case(
        "weights of 4 bits alone",
        int4_dequant,
        Tensor((4096, 2048), torch.uint8, below=256),
        Tensor((4096, 32), scale=0.01),
    )
    yield ordinary_case(
        "all experts",
        moe_dense,
        Tensor((1024, 1024)),
        Tensor((8, 1024, 2048), scale=0.03),
        Tensor((8, 2048, 1024), scale=0.02),
        Tensor((1024, 8)),
    )
    yield ordinary_case("ALiBi attention", alibi, *[Tensor((2, 16, 2048, 64))] * 3, Tensor((16,), single))
    yield ordinary_case("sliding window attention", sliding, *[Tensor((2, 16, 4096, 128))] * 3)
    yield ordinary_case("latent attention, one token", mla_absorbed, Tensor((16, 128, 576)), Tensor((16, 2048, 576)))
    yield ordinary_case("retention", retention, *[Tensor((2, 16, 2048, 64))] * 3, Tensor((16,), single))
    yield ordinary_case(
        "MLP of Llama, 4 tokens",
        llama_decode_mlp,
        Tensor((4, 4096)),
        Tensor((4096,)),
        *[Tensor((14336, 4096), scale=0.01)] * 2,
        Tensor((4096, 14336), scale=0.01),
    )
    yield ordinary_case(
        "LM head and cross entropy",
        lm_head_ce,
        Tensor((2048, 2048)),
        Tensor((32000, 2048), scale=0.02),
        Tensor((2048,), torch.int64, below=32000),
    )
    yield ordinary_case(
        "channel mix of RWKV",
        rwkv_mix,
        Tensor((4, 2048, 1024)),
        *[Tensor((1024,))] * 2,
        *[Tensor((4096, 1024), scale=0.03)] * 2,
    )
    yield ordinary_case(
        "sums of states and RMS norm", lru_rms, Tensor((8, 2048, 1024), single), Tensor((1024,), single)
    )
    yield ordinary_case("beams", beam, Tensor((32, 4, 32000)), Tensor((32, 4), single))


def convnext_block(x: Values, dw: Values, b: Values, lw: Values, lb: Values, *others: Values) -> Values:
    """Block of ConvNeXt."""
    w1, b1, w2, b2, gamma = others
    y = F.conv2d(x, dw, b, padding=3, groups=x.shape[1]).permute(0, 2, 3, 1)
    y = F.layer_norm(y, y.shape[-1:], lw, lb, 1e-6)
    y = F.linear(F.gelu(F.linear(y, w1, b1)), w2, b2) * gamma
    return x + y.permute(0, 3, 1, 2)


def resnet_block(x: Values, w1: Values, s1: Values, t1: Values, w2: Values, s2: Values, t2: Values) -> Values:
    """Block of ResNet."""
    y = F.relu(F.conv2d(x, w1, padding=1) * s1.view(-1, 1, 1) + t1.view(-1, 1, 1))
    y = F.conv2d(y, w2, padding=1) * s2.view(-1, 1, 1) + t2.view(-1, 1, 1)
    return F.relu(x + y)


def se_block(x: Values, w1: Values, b1: Values, w2: Values, b2: Values) -> Values:
    """Squeeze and excitation."""
    s = x.mean((2, 3))
    s = torch.sigmoid(F.linear(F.relu(F.linear(s, w1, b1)), w2, b2))
    return x * s[:, :, None, None]


def patch_embed(x: Values, w: Values, b: Values, pos: Values) -> Values:
    """Patches embedded."""
    y = F.conv2d(x, w, b, stride=16).flatten(2).transpose(1, 2)
    return y + pos


def vit_attention(x: Values, wqkv: Values, bqkv: Values, wo: Values, bo: Values) -> Values:
    """Attention layer of ViT."""
    b, n, d = x.shape
    q, k, v = F.linear(x, wqkv, bqkv).view(b, n, 3, 12, d // 12).permute(2, 0, 3, 1, 4)
    y = F.scaled_dot_product_attention(q, k, v)
    return F.linear(y.transpose(1, 2).reshape(b, n, d), wo, bo) + x


def upsample_add(c5: Values, c4: Values, w: Values) -> Values:
    """Lateral of a pyramid."""
    return F.interpolate(c5, scale_factor=2, mode="nearest") + F.conv2d(c4, w)


def wave_conv(x: Values, w: Values, b: Values) -> Values:
    """Gated convolution of WaveNet."""
    y = F.conv1d(x, w, b, padding=8, dilation=4)
    a, g = y.chunk(2, 1)
    return torch.tanh(a) * torch.sigmoid(g)


def gcn(x: Values, w: Values, src: Values, dst: Values, norm: Values) -> Values:
    """Layer of a GCN."""
    h = x @ w
    return torch.zeros_like(h).index_add(0, dst, h[src] * norm[:, None]).relu()


def bag(table: Values, ids: Values) -> Values:
    """Bags of an embedding."""
    return table[ids].sum(1)


def dlrm(x: Values, e: Values) -> Values:
    """Interaction of DLRM."""
    z = torch.cat((x[:, None], e), 1)
    i = torch.tril_indices(z.shape[1], z.shape[1], -1, device=x.device)
    return torch.cat((x, torch.bmm(z, z.transpose(1, 2))[:, i[0], i[1]]), 1)


def fm(e: Values) -> Values:
    """Factorisation machine."""
    return 0.5 * (e.sum(1) ** 2 - (e * e).sum(1)).sum(-1)


def of_other_networks() -> Iterator[Case]:
    """Images, waves, graphs, tables of words."""
    yield ordinary_case(
        "block of ConvNeXt",
        convnext_block,
        Tensor((16, 192, 56, 56)),
        Tensor((192, 1, 7, 7), scale=0.1),
        *[Tensor((192,))] * 3,
        Tensor((768, 192), scale=0.07),
        Tensor((768,)),
        Tensor((192, 768), scale=0.03),
        *[Tensor((192,))] * 2,
    )
    yield ordinary_case(
        "block of ResNet",
        resnet_block,
        Tensor((32, 128, 28, 28)),
        Tensor((128, 128, 3, 3), scale=0.03),
        *[Tensor((128,))] * 2,
        Tensor((128, 128, 3, 3), scale=0.03),
        *[Tensor((128,))] * 2,
    )
    yield ordinary_case(
        "squeeze and excitation",
        se_block,
        Tensor((32, 256, 56, 56)),
        Tensor((16, 256)),
        Tensor((16,)),
        Tensor((256, 16)),
        Tensor((256,)),
    )
    yield ordinary_case(
        "patches embedded",
        patch_embed,
        Tensor((64, 3, 224, 224)),
        Tensor((768, 3, 16, 16), scale=0.05),
        Tensor((768,)),
        Tensor((1, 196, 768)),
    )
    yield ordinary_case(
        "attention layer of ViT",
        vit_attention,
        Tensor((64, 197, 768)),
        Tensor((2304, 768), scale=0.03),
        Tensor((2304,)),
        Tensor((768, 768), scale=0.03),
        Tensor((768,)),
    )
    yield ordinary_case(
        "lateral of a pyramid",
        upsample_add,
        Tensor((16, 256, 32, 32)),
        Tensor((16, 512, 64, 64)),
        Tensor((256, 512, 1, 1), scale=0.04),
    )
    yield ordinary_case(
        "gated convolution of WaveNet",
        wave_conv,
        Tensor((8, 64, 16000)),
        Tensor((128, 64, 5), scale=0.05),
        Tensor((128,)),
    )
    yield ordinary_case(
        "layer of a GCN",
        gcn,
        Tensor((50000, 128), single),
        Tensor((128, 128), single, 0.1),
        *[Tensor((400000,), torch.int64, below=50000)] * 2,
        Tensor((400000,), single),
    )
    yield ordinary_case(
        "bags of an embedding", bag, Tensor((1000000, 64), single), Tensor((16384, 32), torch.int64, below=1000000)
    )
    yield ordinary_case("interaction of DLRM", dlrm, Tensor((8192, 128)), Tensor((8192, 26, 128)))
    yield ordinary_case("factorisation machine", fm, Tensor((65536, 39, 16), single))


PARTS = (of_language_models, of_other_networks)
