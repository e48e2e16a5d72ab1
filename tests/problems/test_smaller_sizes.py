"""Problem files with smaller numbers at module scope: which numbers change, and how."""

from __future__ import annotations

from cutesmith.problems.smaller_sizes import EVERYWHERE, WHOLE, smaller_sources

SOURCE = """
import torch

batch_size, width = 4096, 1000
classes = 512
odd = 4095
deep = True

class Model:
    def __init__(self):
        self.groups = 64

    def forward(self, x):
        return x[:, :classes]

def get_inputs():
    return [torch.rand(batch_size, width, 128)]
"""


def test_each_way_changes_whole_numbers_at_module_scope_alone():
    found = dict(smaller_sources(SOURCE))
    first = "all to 16, images to 8, the batch to 2"
    some = [first, "all to 16", "large ones by 32", "batch to 2", "those of get_inputs to 64"]
    assert list(found) == [*some, EVERYWHERE, WHOLE]
    assert "batch_size, width = (16, 125)" in found["all to 16"] and "classes = 16" in found["all to 16"]
    assert (
        "batch_size, width = (128, 1000)" in found["large ones by 32"] and "classes = 16" in found["large ones by 32"]
    )
    assert "batch_size, width = (64, 125)" in found["those of get_inputs to 64"]
    assert "classes = 512" in found["those of get_inputs to 64"]  # the model reads it
    assert found[WHOLE] == SOURCE
    assert "classes = 64" in found[EVERYWHERE] and "rand(batch_size, width, 64)" in found[EVERYWHERE]
    for way in (*some, WHOLE):
        source = found[way]
        assert "odd = 4095" in source and "self.groups = 64" in source and "deep = True" in source
        assert "width, 128)" in source


def test_a_batch_becomes_2_and_an_image_8():
    numbers = "batch_size = 128\nfeatures = 1024\nheight = width = 64\n"
    source = f"{numbers}\ndef get_inputs():\n    return [batch_size * features]\n"
    found = dict(smaller_sources(source))
    assert found["batch to 2"].startswith("batch_size = 2\nfeatures = 1024\nheight = width = 64\n")
    assert found["all to 16, images to 8, the batch to 2"].startswith(
        "batch_size = 2\nfeatures = 16\nheight = width = 8\n"
    )


def test_groups_become_fewer_than_the_channels_that_they_part():
    source = "channels, other = 512, 32\nnum_groups = 32\n"
    found = dict(smaller_sources(source))
    assert found["all to 16"] == "channels, other = (16, 16)\nnum_groups = 4\n"
