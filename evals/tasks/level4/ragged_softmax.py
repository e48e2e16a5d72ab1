"""Softmax within each segment of a long vector, the segments given by their borders: scores of a graph's edges.

A node has 0 to 127 edges, 262144 nodes; 8 attention heads, as in a graph attention network.
"""

import torch

LEVEL = 4
TAGS = ("softmax", "ragged", "segments", "fp32", "graph")
DERIVED_SHAPES = False  # borders belong to the number of edges
EMULATED_SIZES = {"nodes": 512}


def reference_fn(scores, borders):
    """scores [edges, heads] fp32; the edges of node i are borders[i] to borders[i + 1], int64."""
    torch._assert_async((borders.diff() >= 0).all() & (borders[0] == 0) & (borders[-1] == len(scores)), "bad borders")
    node = torch.searchsorted(borders, torch.arange(len(scores), device=scores.device), right=True) - 1
    index = node.unsqueeze(1).expand_as(scores)
    nodes = (len(borders) - 1, scores.shape[1])
    largest = torch.full(nodes, float("-inf"), dtype=scores.dtype, device=scores.device)
    largest = largest.scatter_reduce(0, index, scores, "amax")
    shifted = torch.exp(scores - largest.gather(0, index))
    sums = torch.zeros(nodes, dtype=torch.float64, device=scores.device).scatter_add(0, index, shifted.double())
    return (shifted / sums.gather(0, index)).to(scores.dtype)


def get_inputs(nodes=262144, heads=8, most=127):
    """Node i has i % (most + 1) edges, in random order of the nodes."""
    degrees = (torch.arange(nodes, device="cuda") % (most + 1))[torch.randperm(nodes, device="cuda")]
    edges = sum(number % (most + 1) for number in range(nodes))
    borders = torch.cat((torch.zeros(1, dtype=torch.int64, device="cuda"), degrees.cumsum(0)))
    return [2.0 * torch.randn(edges, heads, device="cuda"), borders]


def get_input_sets():
    for sizes in ((64, 8, 127), (33, 3, 5), (2, 1, 9)):
        yield get_inputs(*sizes)
