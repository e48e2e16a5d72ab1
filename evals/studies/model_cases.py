"""Cases of `bench_patterns.py` from the code of current models, beside torch.compile: what lies around products."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F  # noqa: N812
from pattern_cases import Case, half, single
from races import Function, Tensor

Values = torch.Tensor


def _case(name: str, function: Function, *arguments: Tensor, tolerance: float | None = None) -> Case:
    return Case(name, function, arguments, 2, compiled="default", tolerance=tolerance)


def rotate_half(x: Values, cos: Values, sin: Values) -> Values:
    """A rotary embedding as Llama has it."""
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


def rotate_pairs(x: Values, cos: Values, sin: Values) -> Values:
    """A rotary embedding of neighbouring elements, as GPT-J has it."""
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


def windows_of(x: Values) -> Values:
    """Swin's shifted windows of 7 x 7."""
    x = torch.roll(x, (-3, -3), (1, 2))
    b, h, w, c = x.shape
    return x.view(b, h // 7, 7, w // 7, 7, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, c)


def image_of(x: Values) -> Values:
    """An image of Swin's windows, rolled back."""
    c = x.shape[-1]
    x = x.view(-1, 8, 8, 7, 7, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 56, 56, c)
    return torch.roll(x, (3, 3), (1, 2))


def patches_of(x: Values) -> Values:
    """Patches of 16 x 16 as rows, as in a vision transformer."""
    b, c, h, w = x.shape
    x = x.view(b, c, h // 16, 16, w // 16, 16)
    return x.permute(0, 2, 4, 3, 5, 1).reshape(b, (h // 16) * (w // 16), 256 * c)


def shuffled_channels(x: Values) -> Values:
    """ShuffleNet's channels of four groups."""
    b, c, h, w = x.shape
    return x.view(b, 4, c // 4, h, w).transpose(1, 2).reshape(b, c, h, w)


def shifted_tokens(x: Values, mu: Values) -> Values:
    """RWKV's mix of each token with the one before."""
    return x + (F.pad(x, (0, 0, 1, -1)) - x) * mu


def moved_tokens() -> Iterator[Case]:
    """What takes elements from other places: rotary embeddings, windows, patches, gathers."""
    x, table = Tensor((2, 32, 4096, 128)), Tensor((4096, 128))
    yield _case("rope, halves", rotate_half, x, table, table, tolerance=1e-2)
    table = Tensor((4096, 64))
    yield _case("rope, pairs", rotate_pairs, x, table, table, tolerance=1e-2)
    ids = Tensor((8192,), torch.int64, below=128256)
    yield _case("embedding of 8192 tokens", lambda i, w: w[i], ids, Tensor((128256, 4096)))
    ids, words, places = Tensor((64, 512), torch.int64, below=30522), Tensor((30522, 768)), Tensor((512, 768))
    norm = lambda i, w, p, g, b: F.layer_norm(w[i] + p, (768,), g, b)  # noqa: E731
    yield _case("embedding, positions, norm", norm, ids, words, places, Tensor((768,)), Tensor((768,)))
    blocks = Tensor((32, 64), torch.int64, below=4096)
    gather = lambda cache, blocks: cache[blocks].flatten(1, 2)  # noqa: E731
    yield _case("pages of a cache", gather, Tensor((4096, 16, 8, 128)), blocks)
    yield _case("Swin's shifted windows", windows_of, Tensor((64, 56, 56, 96)))
    yield _case("image of Swin's windows", image_of, Tensor((64 * 64, 49, 96)))
    yield _case("patches of images", patches_of, Tensor((64, 3, 224, 224)))
    yield _case("pixel shuffle", lambda x: F.pixel_shuffle(x, 2), Tensor((16, 256, 64, 64)))
    yield _case("channel shuffle", shuffled_channels, Tensor((64, 256, 56, 56)))
    yield _case("flipped images", lambda x: (x.flip(-1) - 0.5) * 2, Tensor((64, 3, 512, 512), single))
    skip = lambda x, skip: F.silu(torch.cat((x, skip), 1))  # noqa: E731
    yield _case("skip connection and SiLU", skip, Tensor((16, 128, 128, 128)), Tensor((16, 64, 128, 128)))
    yield _case("shifted tokens", shifted_tokens, Tensor((8, 4096, 2048)), Tensor((2048,)))
    heads = lambda k: k.repeat_interleave(4, 1)  # noqa: E731
    yield _case("repeated heads", heads, Tensor((4, 8, 4096, 128)))
    gated = lambda x: F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1]  # noqa: E731
    yield _case("gate of halves", gated, Tensor((8192, 28672)))
    yield _case("rolled rows", lambda x: x.roll(5, -1), Tensor((8192, 8192), single))


def chosen_experts(scores: Values) -> tuple[Values, Values]:
    """The weights of the 8 best of 64 experts, and which they are."""
    weights, places = scores.float().softmax(-1).topk(8, -1)
    return weights / weights.sum(-1, keepdim=True), places


def balance(scores: Values) -> Values:
    """A router's auxiliary loss: shares of tokens times mean probabilities of each expert."""
    probabilities = scores.float().softmax(-1)
    share = F.one_hot(probabilities.topk(2, -1).indices, 64).sum(1).float().mean(0)
    return 64 * (share * probabilities.mean(0)).sum()


def top_p(logits: Values) -> Values:
    """Probabilities of the most likely tokens that come to 0.9 together."""
    values, places = logits.softmax(-1).sort(-1, descending=True)
    values = values.masked_fill(values.cumsum(-1) - values > 0.9, 0.0)
    return torch.zeros_like(values).scatter(-1, places, values)


def quantised_tokens(x: Values) -> tuple[Values, Values]:
    """Rows as int8 with a scale each."""
    scale = x.float().abs().amax(-1, keepdim=True) / 127
    return (x.float() / scale).round().clamp(-127, 127).to(torch.int8), scale


def quantised_blocks(x: Values) -> tuple[Values, Values]:
    """Blocks of 128 as fp8 with a scale each, as DeepSeek-V3 has them."""
    blocks = x.float().unflatten(-1, (-1, 128))
    scale = blocks.abs().amax(-1, keepdim=True) / 448
    return (blocks / scale).to(torch.float8_e4m3fn).flatten(-2), scale.squeeze(-1)


def normed(x: Values, w: Values) -> Values:
    """Qwen3's RMS norm of heads."""
    square = x.float().pow(2).mean(-1, keepdim=True)
    return w * (x.float() * torch.rsqrt(square + 1e-6)).to(x.dtype)


def normed_about_one(x: Values, w: Values) -> Values:
    """Gemma 3's RMS norm of heads."""
    value = x.float()
    value = value * torch.rsqrt(value.pow(2).mean(-1, keepdim=True) + 1e-6)
    return (value * (1 + w.float())).type_as(x)


def heads_of(x: Values, norm: Callable[[Values, Values], Values], w: Values, cos: Values, sin: Values) -> Values:
    """Queries or keys (batch, tokens, heads, 128), normed and rotated, as attention takes them."""
    return rotate_half(norm(x, w).transpose(1, 2), cos.unsqueeze(1), sin.unsqueeze(1))


def heads_of_flat_norm(q: Values, w: Values, cos: Values, sin: Values) -> Values:
    """OLMo 2's queries, normed before there are heads."""
    heads = F.rms_norm(q, (4096,), w).unflatten(-1, (-1, 128)).transpose(1, 2)
    return rotate_half(heads, cos.unsqueeze(1), sin.unsqueeze(1))


def heads_of_projection(qkv: Values, wq: Values, wk: Values, cos: Values, sin: Values) -> tuple[Values, Values]:
    """32 heads of queries and 8 of keys from one projection, beside 8 of values."""
    q, k, _ = qkv.unflatten(-1, (-1, 128)).split((32, 8, 8), 2)
    return heads_of(q, normed, wq, cos, sin), heads_of(k, normed, wk, cos, sin)


def rotated_quarter(x: Values, w: Values, cos: Values, sin: Values) -> Values:
    """Normed heads of which the first channels alone are rotated, as many as the tables have."""
    y = F.rms_norm(x, (128,), w)
    return torch.cat((rotate_half(y[..., :32], cos, sin), y[..., 32:]), -1)


def gated_halves(x: Values, w: Values) -> Values:
    """A gate of the halves of a normed row."""
    gate, value = F.rms_norm(x, (8192,), w).chunk(2, -1)
    return F.silu(gate) * value


def normed_heads() -> Iterator[Case]:
    """Norms of heads and rotary embeddings, and gates of normed halves."""
    w, table = Tensor((128,)), Tensor((1, 4096, 128))
    q, k = Tensor((2, 4096, 32, 128)), Tensor((2, 4096, 8, 128))
    qwen = lambda q, k, wq, wk, *tables: (heads_of(q, normed, wq, *tables), heads_of(k, normed, wk, *tables))  # noqa: E731
    yield _case("heads of Qwen3", qwen, q, k, w, w, table, table, tolerance=2e-2)
    gemma = lambda q, w, *tables: heads_of(q, normed_about_one, w, *tables)  # noqa: E731
    yield _case("heads of Gemma 3", gemma, q, w, table, table, tolerance=2e-2)
    yield _case(
        "heads of OLMo 2", heads_of_flat_norm, Tensor((2, 4096, 4096)), Tensor((4096,)), table, table, tolerance=2e-2
    )
    qkv = Tensor((2, 4096, 48 * 128))
    yield _case("heads of a projection", heads_of_projection, qkv, w, w, table, table, tolerance=2e-2)
    rope = lambda x, w, *tables: rotate_half(F.rms_norm(x, (128,), w), *tables)  # noqa: E731
    table = Tensor((4096, 128))
    yield _case("norm and rope", rope, Tensor((2, 32, 4096, 128)), w, table, table, tolerance=2e-2)
    table = Tensor((4096, 32))
    yield _case("norm and partial rope", rotated_quarter, Tensor((2, 32, 4096, 128)), w, table, table, tolerance=2e-2)
    yield _case("gate of normed halves", gated_halves, Tensor((8192, 8192)), Tensor((8192,)), tolerance=2e-2)


def rows_of_models() -> Iterator[Case]:
    """Norms, losses, routers, samplers and quantisation."""
    x, w = Tensor((8192, 4096)), Tensor((4096,))
    norm = lambda x, r, w: (F.rms_norm(x + r, (4096,), w), x + r)  # noqa: E731
    yield _case("residual and RMS norm", norm, x, x, w, tolerance=1e-2)
    modulated = lambda x, a, b: F.layer_norm(x, (1152,)) * (1 + a[:, None]) + b[:, None]  # noqa: E731
    yield _case("modulated norm", modulated, Tensor((64, 256, 1152)), Tensor((64, 1152)), Tensor((64, 1152)))
    norm = lambda x, w, b: F.silu(F.group_norm(x, 32, w, b))  # noqa: E731
    yield _case("group norm and SiLU", norm, Tensor((8, 320, 64, 64)), Tensor((320,)), Tensor((320,)))
    channels = lambda x, w, b: F.layer_norm(x.permute(0, 2, 3, 1), (192,), w, b).permute(0, 3, 1, 2)  # noqa: E731
    yield _case("norm of channels", channels, Tensor((32, 192, 56, 56)), Tensor((192,)), Tensor((192,)))
    yield _case("experts of tokens", chosen_experts, Tensor((16384, 64)), tolerance=1e-2)
    yield _case("balance of experts", balance, Tensor((16384, 64), single))
    yield _case("top-p of 64 tokens", top_p, Tensor((64, 32000), single), tolerance=1e-2)
    labels = Tensor((8192,), torch.int64, below=32000)
    yield _case("cross entropy", F.cross_entropy, Tensor((8192, 32000), single), labels)
    smooth = lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1)  # noqa: E731
    yield _case("cross entropy, smoothed", smooth, Tensor((8192, 32000), single), labels)
    yield _case("int8 of tokens", quantised_tokens, x, tolerance=1e-2)
    yield _case("fp8 of blocks", quantised_blocks, x, tolerance=4e-2)


def neighbours(x: Values) -> Values:
    """The 20 nearest of the points of a cloud, as DGCNN has them."""
    inner = -2 * (x @ x.transpose(1, 2))
    squares = (x * x).sum(-1, keepdim=True)
    return (-squares - inner - squares.transpose(1, 2)).topk(20, -1).values


def chamfer(x: Values, y: Values) -> Values:
    """The mean distance to the nearest point of the other cloud."""
    distances = ((x[:, :, None] - y[:, None]) ** 2).sum(-1)
    return distances.amin(1).mean() + distances.amin(2).mean()


def codes(x: Values, table: Values) -> Values:
    """The nearest entry of a table for each row, as in VQ-VAE."""
    distances = (x * x).sum(1, keepdim=True) - 2 * x @ table.t() + (table * table).sum(1)
    return table[distances.argmin(1)]


def overlaps(a: Values, b: Values) -> Values:
    """Intersection over union of all pairs of boxes."""
    a, b = torch.cat((a, a + 1), 1), torch.cat((b, b + 1), 1)
    size = (torch.minimum(a[:, None, 2:], b[:, 2:]) - torch.maximum(a[:, None, :2], b[:, :2])).clamp(min=0)
    shared = size[..., 0] * size[..., 1]
    area = lambda boxes: (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])  # noqa: E731
    return shared / (area(a)[:, None] + area(b) - shared)


def contrast(x: Values, y: Values) -> Values:
    """CLIP's loss of images and texts."""
    logits = 20 * F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).t()
    labels = torch.arange(x.shape[0], device=x.device)
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


def messages(x: Values, source: Values, target: Values) -> Values:
    """Sums of the messages that the nodes of a graph get."""
    return torch.zeros_like(x).index_add(0, target, x[source])


def similarity(x: Values, y: Values, w: Values) -> Values:
    """SSIM of two images, by Gaussian windows of 11 x 11."""
    w = w.abs().expand(3, 1, 11, 11) / w.abs().sum()
    blur = lambda x: F.conv2d(x, w, padding=5, groups=3)  # noqa: E731
    mx, my = blur(x), blur(y)
    vx, vy, both = blur(x * x) - mx * mx, blur(y * y) - my * my, blur(x * y) - mx * my
    return ((2 * mx * my + 1e-4) * (2 * both + 9e-4) / ((mx**2 + my**2 + 1e-4) * (vx + vy + 9e-4))).mean()


def kalman(state: Values, spread: Values, step: Values, noise: Values) -> tuple[Values, Values]:
    """A prediction of a filter's state and its covariance."""
    return (step @ state[..., None])[..., 0], step @ spread @ step.t() + noise


def pairs_and_images() -> Iterator[Case]:
    """Distances, neighbours, graphs, losses of pairs, images."""
    yield _case("neighbours of points", neighbours, Tensor((16, 2048, 64), single), tolerance=1e-3)
    cloud = Tensor((8, 2048, 3), single)
    yield _case("Chamfer distance", chamfer, cloud, cloud)
    yield _case("codes of a table", codes, Tensor((16384, 256), single), Tensor((1024, 256), single), tolerance=0.1)
    boxes = Tensor((4000, 2), single)
    yield _case("overlaps of boxes", overlaps, boxes, boxes)
    yield _case("contrast of pairs", contrast, Tensor((4096, 512)), Tensor((4096, 512)), tolerance=1e-2)
    edges = Tensor((1_000_000,), torch.int64, below=100_000)
    yield _case("messages of a graph", messages, Tensor((100_000, 64), single), edges, edges)
    image = Tensor((16, 3, 512, 512), single)
    yield _case("SSIM", similarity, image, image, Tensor((1, 1, 11, 11), single), tolerance=1e-2)
    states = Tensor((65536, 4), single), Tensor((65536, 4, 4), single), Tensor((4, 4), single), Tensor((4, 4), single)
    yield _case("Kalman's prediction", kalman, *states)
    sample = lambda x, grid: F.grid_sample(x, grid, align_corners=False)  # noqa: E731
    yield _case("sampled images", sample, Tensor((8, 64, 128, 128), single), Tensor((8, 128, 128, 2), single, 0.4))


def selective_scan(x: Values, step: Values, a: Values, b: Values, c: Values) -> Values:
    """Mamba's recurrence, a step of Python for each token."""
    state, results = torch.zeros_like(x[:, 0, :, None] * b[:, 0, None]), []
    for t in range(x.shape[1]):
        decay = torch.exp(step[:, t, :, None] * a)
        state = decay * state + (step[:, t] * x[:, t])[..., None] * b[:, t, None]
        results.append((state * c[:, t, None]).sum(-1))
    return torch.stack(results, 1)


def linear_attention(q: Values, k: Values, v: Values) -> Values:
    """Attention without softmax, as a sum so far."""
    state, results = torch.zeros_like(k[:, 0, :, None] * v[:, 0, None]), []
    for t in range(q.shape[1]):
        state = state + k[:, t, :, None] * v[:, t, None]
        results.append((q[:, t, :, None] * state).sum(1))
    return torch.stack(results, 1)


def advantages(rewards: Values, values: Values) -> Values:
    """Generalised advantage estimates, from the last step back."""
    last, results = torch.zeros_like(rewards[0]), []
    for t in reversed(range(rewards.shape[0])):
        last = rewards[t] + 0.99 * values[t + 1] - values[t] + 0.99 * 0.95 * last
        results.append(last)
    return torch.stack(results[::-1])


def loops() -> Iterator[Case]:
    """Loops over time that Python unrolls."""
    inner, narrow = Tensor((8, 64, 2048), single, 0.1), Tensor((8, 64, 16), single)
    steps = Tensor((2048, 16), single)
    yield _case("selective scan", selective_scan, inner, inner, steps, narrow, narrow, tolerance=1e-4)
    heads = Tensor((64, 64, 64), single)
    yield _case("linear attention", linear_attention, heads, heads, heads, tolerance=1e-4)
    yield _case("advantages", advantages, Tensor((64, 4096), single), Tensor((65, 4096), single))


def _low_rank(x: Values, w: Values, a: Values, b: Values) -> Values:
    return x @ w.t() + 0.5 * (x @ a.t()) @ b.t()


def _by_rows(x: Values, w: Values, scale: Values) -> Values:
    return x @ (w.to(x.dtype) * scale[:, None]).t()


def products_of_models() -> Iterator[Case]:
    """Products beside low-rank ones, with weights of 8 bits, of one token with a cache."""
    weight, thin = Tensor((4096, 4096), half, 1 / 64), Tensor((16, 4096), half, 1 / 64)
    for m in (16, 4096):
        yield _case(f"low-rank update of {m} tokens", _low_rank, Tensor((m, 4096)), weight, thin, Tensor((4096, 16)),
                    tolerance=1e-2)  # fmt: skip
    weight, scale = Tensor((14336, 4096), torch.int8, 40.0), Tensor((14336,), half, 1 / 4096)
    for m in (1, 16, 4096):
        yield _case(f"weights of 8 bits, {m} tokens", _by_rows, Tensor((m, 4096)), weight, scale, tolerance=1e-2)
    cached = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True)  # noqa: E731
    keys = Tensor((32, 8, 4096, 128))
    yield _case("one token of 32 caches", cached, Tensor((32, 32, 1, 128)), keys, keys, tolerance=1e-2)


PARTS: tuple[Callable[[], Iterator[Case]], ...] = (
    moved_tokens, normed_heads, rows_of_models, pairs_and_images, loops, products_of_models,
)  # fmt: skip
