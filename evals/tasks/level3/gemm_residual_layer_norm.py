"""Output projection, bias, residual sum and layer norm over 768 columns, as at the end of a BERT-base block."""

import torch
import torch.nn.functional as F

LEVEL = 3
TAGS = ("matmul", "epilogue", "row-reduction", "fp16", "bert")


def reference_fn(x, weight, bias, residual, gain, shift):
    total = F.linear(x.float(), weight.float(), bias.float()) + residual.float()
    return F.layer_norm(total, total.shape[-1:], gain.float(), shift.float(), eps=1e-12).to(x.dtype)


def get_inputs(tokens=65536, inputs=3072, outputs=768):
    def draw(*shape, scale=1.0):
        return (scale * torch.randn(shape, device="cuda")).half()

    weight = draw(outputs, inputs, scale=inputs**-0.5)
    vectors = [draw(outputs) for _ in range(3)]
    return [draw(tokens, inputs), weight, vectors[0], draw(tokens, outputs), *vectors[1:]]


def get_input_sets():
    for sizes in ((1, 256, 128), (33, 72, 200), (5, 16, 24)):
        yield get_inputs(*sizes)
