"""PyTorch's own fused operations and those of cuBLAS and FlashAttention behind it; written for torch 2.11 to 2.13.

Where a reference is written out in parts or multiplies in float32, the operation that computes it whole, or the tensor
cores' product with float32 sums before what follows it. Source: https://docs.pytorch.org/docs/2.11/torch.html.
"""

import torch
import torch.nn.functional as F

NEEDS = "torch"
TASKS = {
    "level1/channel_scale": "channel_scale",
    "level1/dequantize_int8": "dequantize_int8",
    "level1/mish": "mish",
    "level1/scalar_affine": "scalar_affine",
    "level1/transposed_input": "transposed_input",
    "level2/dropout_mask_scale": "dropout_mask_scale",
    "level2/gelu_backward": "gelu_backward",
    "level2/layer_norm_written_out": "layer_norm_written_out",
    "level2/rms_norm_gemma": "rms_norm_gemma",
    "level2/rms_norm_llama": "rms_norm_llama",
    "level2/row_dot": "row_dot",
    "level2/softmax_backward": "softmax_backward",
    "level3/gelu_mlp_biases": "gelu_mlp_biases",
    "level3/gemm_bias_gelu": "gemm_bias_gelu",
    "level3/gemm_fp8_bias": "gemm_fp8_bias",
    "level3/gemm_int8_rows": "gemm_int8_rows",
    "level3/gemm_int8_weights": "gemm_int8_weights",
    "level3/gemm_residual_layer_norm": "gemm_residual_layer_norm",
    "level3/gemm_soft_cap": "gemm_soft_cap",
    "level3/linear_cross_entropy": "linear_cross_entropy",
    "level3/lora_linear": "lora_linear",
    "level3/lstm_step": "lstm_step",
    "level3/window_attention_bias": "window_attention_bias",
    "level4/attention_backward": "attention_backward",
    "level4/attention_sliding_window": "attention_sliding_window",
    "level4/attention_varlen": "attention_varlen",
    "level4/gemm_fp8_blocks": "gemm_fp8_blocks",
    "level4/grouped_gemm": "grouped_gemm",
    "level4/latent_attention_decode": "latent_attention_decode",
}


def channel_scale(x, scale, shift):
    return torch.addcmul(shift[:, None, None], x, scale[:, None, None])


def dequantize_int8(q, scale):
    return torch.mul(q, scale, out=torch.empty_like(q, dtype=torch.bfloat16))


def mish(x):
    return F.mish(x)


def scalar_affine(x, alpha, beta):
    return torch.add(torch.tensor(beta), x, alpha=alpha)  # the scalar may stay on the host


def transposed_input(a, b):
    return torch.add(a, b, alpha=2.0)


def dropout_mask_scale(x, residual, keep):
    return torch.addcmul(residual, x, keep, value=1.25)


def gelu_backward(gradient, x):
    return torch.ops.aten.gelu_backward(gradient, x, approximate="tanh")


def layer_norm_written_out(x, weight, bias):
    """In float32: on a GPU its input has the type of its parameters, and rounding those shows where terms cancel."""
    return F.layer_norm(x.float(), x.shape[-1:], weight, bias).to(x.dtype)


def rms_norm_gemma(x, weight):
    return F.rms_norm(x, x.shape[-1:], 1.0 + weight, eps=1e-6)


def rms_norm_llama(x, weight):
    return F.rms_norm(x, x.shape[-1:], weight, eps=1e-6)


def row_dot(a, b):
    return torch.bmm(a.unsqueeze(1), b.unsqueeze(2), out_dtype=torch.float32).view(-1)


def softmax_backward(gradient, probability):
    return torch._softmax_backward_data(gradient, probability, -1, gradient.dtype)


def gelu_mlp_biases(x, first, first_bias, second, second_bias):
    inner = torch._addmm_activation(first_bias, x, first.t(), use_gelu=True)  # cuBLASLt's GELU is the one of tanh
    return F.linear(inner, second, second_bias)


def gemm_bias_gelu(x, weight, bias):
    return F.gelu(F.linear(x, weight, bias))


def gemm_fp8_bias(x, weight, x_scale, weight_scale, bias):
    return torch._scaled_mm(x, weight.t(), x_scale, weight_scale, bias=bias, out_dtype=bias.dtype)


def gemm_int8_rows(x, weight, token_scales, channel_scales):
    sums = torch._int_mm(x, weight.t())
    out = torch.empty_like(sums, dtype=torch.float16)
    return torch.mul(sums * token_scales.unsqueeze(1), channel_scales, out=out)


def gemm_int8_weights(x, weight, scales):
    """Not by `_weight_int8pack_mm`, which sums in float32 without tensor cores."""
    product = F.linear(x, weight.to(x.dtype))
    return torch.mul(product, scales, out=product)


def gemm_residual_layer_norm(x, weight, bias, residual, gain, shift):
    total = torch.mm(x, weight.t(), out_dtype=torch.float32).add_(bias).add_(residual)
    return F.layer_norm(total, total.shape[-1:], gain.float(), shift.float(), eps=1e-12).to(x.dtype)


def gemm_soft_cap(x, weight, cap):
    return torch.mm(x, weight.t(), out_dtype=torch.float32).div_(cap).tanh_().mul_(cap)


def linear_cross_entropy(x, weight, target):
    return F.cross_entropy(torch.mm(x, weight.t(), out_dtype=torch.float32), target, reduction="none")


def lora_linear(x, weight, down, up, scale):
    product, narrow = (torch.mm(x, w.t(), out_dtype=torch.float32) for w in (weight, down))
    return product.addmm_(narrow, up.float().t(), alpha=scale).to(weight.dtype)


def lstm_step(x, hidden, cell, input_weight, hidden_weight, bias):
    gates = [torch.mm(a, w.t(), out_dtype=torch.float32) for a, w in ((x, input_weight), (hidden, hidden_weight))]
    bias = bias.float()
    new_hidden, new_cell, _ = torch.ops.aten._thnn_fused_lstm_cell(*gates, cell.float(), bias, torch.zeros_like(bias))
    return new_hidden.to(x.dtype), new_cell.to(x.dtype)


def window_attention_bias(query, key, value, bias):
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias.unsqueeze(0))
    return mixed.contiguous()  # which it is by cuDNN; the other kernels leave heads between tokens


def attention_backward(query, key, value, output, logsumexp, gradient):
    lengths = query.shape[2], key.shape[2]
    seed = torch.empty((), dtype=torch.int64, device=query.device)  # of a dropout that there is not
    return torch.ops.aten._scaled_dot_product_flash_attention_backward(
        gradient, query, key, value, output, logsumexp, None, None, *lengths, 0.0, True, seed, seed
    )


def attention_sliding_window(query, key, value, window):
    query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
    mixed = torch.ops.aten._flash_attention_forward(
        *(query, key, value, None, None, query.shape[1], key.shape[1], 0.0, True, False),
        window_size_left=window - 1,
        window_size_right=0,
    )[0]
    return mixed.transpose(1, 2)


def attention_varlen(query, key, value, borders):
    """The longest sequence is not known on the host, where to ask would be to wait: all tokens are a bound."""
    borders, longest = borders.int(), len(query)
    return torch.ops.aten._flash_attention_forward(
        query, key, value, borders, borders, longest, longest, 0.0, True, False
    )[0]


def gemm_fp8_blocks(x, x_scales, weight, weight_scales):
    """cuBLAS wants the scales of a weight's blocks to follow one another along the inputs."""
    rows = weight.flatten(2).flatten(0, 1)
    scales = weight_scales.t().contiguous().t()
    return torch._scaled_mm(x.flatten(1), rows.t(), x_scales.t(), scales, out_dtype=torch.bfloat16)


def grouped_gemm(x, weight, ends):
    return torch._grouped_mm(x, weight.mT, ends.int())


def latent_attention_decode(query, rotary_query, latent, rotary, scale):
    """All heads read the same keys: they stand where the tokens of a query would."""
    queries, keys = torch.cat((query, rotary_query), dim=-1), torch.cat((latent, rotary), dim=-1)
    mixed = F.scaled_dot_product_attention(*(t.unsqueeze(1) for t in (queries, keys, latent)), scale=scale)
    return mixed.squeeze(1)
