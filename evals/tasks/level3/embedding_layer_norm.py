"""The embeddings of BERT-large: word, place and kind of token summed, then layer norm; 30522 words of 1024 numbers."""

import math

import torch
import torch.nn.functional as F

LEVEL = 3
TAGS = ("gather", "row-reduction", "fp16", "bert")
DOMAIN = {"ids": "positive", "kinds": "positive"}  # no index is counted from the end
DERIVED_SHAPES = False  # token ids are indices of the table's rows
EMULATED_SIZES = {"batch": 4, "length": 16, "vocabulary": 128}


def reference_fn(ids, kinds, words, places, types, gain, shift):
    """ids and kinds [batch, length] int64; tables [rows, hidden]; gain and shift [hidden]."""
    total = words[ids].float() + places[: ids.shape[1]].float() + types[kinds].float()
    return F.layer_norm(total, total.shape[-1:], gain.float(), shift.float(), eps=1e-12).to(words.dtype)


def ALGORITHMIC_BYTES(ids, kinds, words, places, types, gain, shift):
    """Words that random tokens meet at least once (expected), the smaller tables, and a row written for each token."""
    vocabulary, hidden = words.shape
    met = vocabulary * (1 - math.exp(-ids.numel() / vocabulary))
    read = met + places.shape[0] + types.shape[0] + 2
    return 16 * ids.numel() + int(2 * hidden * (read + ids.numel()))


def get_inputs(batch=128, length=512, vocabulary=30522, hidden=1024):
    def table(rows):
        return torch.randn(rows, hidden, device="cuda", dtype=torch.float16)

    ids = torch.randint(0, vocabulary, (batch, length), device="cuda")
    kinds = torch.randint(0, 2, (batch, length), device="cuda")
    return [ids, kinds, table(vocabulary), table(length), table(2), table(1)[0], table(1)[0]]


def get_input_sets():
    for sizes in ((1, 128, 1000, 256), (3, 33, 97, 100), (5, 1, 7, 8)):
        yield get_inputs(*sizes)
