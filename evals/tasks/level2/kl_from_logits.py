"""KL divergence of each row between two sets of bf16 logits, as in distillation."""

import torch

LEVEL = 2
TAGS = ("row-reduction", "bf16", "loss", "softmax")


def reference_fn(student, teacher):
    student = torch.log_softmax(student.float(), dim=-1)
    teacher = torch.log_softmax(teacher.float(), dim=-1)
    return (torch.exp(teacher) * (teacher - student)).sum(dim=-1)


def get_inputs(rows=16384, columns=4096):
    return [
        torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16),
        torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16),
    ]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 2)):
        yield get_inputs(rows, columns)
