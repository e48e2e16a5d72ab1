"""Log-probability of one chosen token a row, gathered from the log-softmax."""

import torch

LEVEL = 2
TAGS = ("row-reduction", "bf16", "loss", "softmax", "index")


def reference_fn(logits, token):
    return torch.log_softmax(logits.float(), dim=-1).gather(-1, token[:, None]).squeeze(-1)


def get_inputs(rows=4096, columns=32000):
    token = torch.randint(0, columns, (rows,), device="cuda")
    return [torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16), token]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 2)):
        yield get_inputs(rows, columns)
