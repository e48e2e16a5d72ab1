"""What a network of many different kernels takes to draft and to compile: CPU seconds, and wall seconds at some load.

python evals/studies/bench_networks.py [--blocks 4 6 6 4] [--arch sm_90a] [--out FILE]

The network is a DenseNet of blocks of so many layers: each layer has a convolution of channels of its own, and joins
what all before it gave, so that hardly two of its launches share a kernel. No GPU is used. Each line of `--out` is one
run: the launches' kernels and functions that were compiled, seconds, and the load of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NETWORK = """
import torch
from torch import nn


def normed(channels, features, size):
    convolution = nn.Conv2d(channels, features, size, padding=size // 2, bias=False)
    return nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(inplace=True), convolution)


class Model(nn.Module):
    def __init__(self, blocks=BLOCKS, growth=32):
        super().__init__()
        stem = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.stem = nn.Sequential(stem, nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        self.layers, self.halvings, channels = nn.ModuleList(), nn.ModuleList(), 64
        for layers in blocks:
            widths = range(channels, channels + layers * growth, growth)
            self.layers.append(nn.ModuleList(normed(width, growth, 3) for width in widths))
            channels = (channels + layers * growth) // 2
            self.halvings.append(nn.Sequential(normed(2 * channels, channels, 1), nn.AvgPool2d(2)))
        self.head = nn.Linear(channels, 1000)

    def forward(self, x):
        x = self.stem(x)
        for layers, halving in zip(self.layers, self.halvings):
            features = [x]
            for layer in layers:
                features.append(layer(torch.cat(features, 1)))
            x = halving(torch.cat(features, 1))
        return self.head(x.mean((2, 3)))


def get_inputs():
    return [torch.rand(10, 3, 224, 224)]


def get_init_inputs():
    return []
"""
DRAFT = """
import sys
from cutesmith.patterns.generation.drafting import draft_kernels
print(draft_kernels(sys.argv[1], sys.argv[2], limit=1, timed=False).kernels[0].source)
"""


def measured(command: list[str]) -> tuple[str, dict[str, float]]:
    """What a command prints, and its CPU and wall seconds with those of all its processes."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return printed, {"cpu_seconds": round(used, 1), "seconds": round(time.perf_counter() - started, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, nargs="+", default=[4, 6, 6, 4], help="layers of each block")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--out", type=Path, help="a file that gets one more line of JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        problem, kernel = Path(folder, "network.py"), Path(folder, "kernel.py")
        problem.write_text(NETWORK.replace("BLOCKS", repr(tuple(given.blocks))))
        source, drafting = measured([sys.executable, "-c", DRAFT, str(problem), given.arch])
        kernel.write_text(source)
        options = ["--problem", str(problem), "--arch", given.arch, "--json"]
        printed, compiling = measured([sys.executable, "-m", "cutesmith", "compile", str(kernel), *options])
    (report,) = json.loads(printed)["archs"]
    run = {"blocks": given.blocks, "arch": given.arch, "kernels": len({each["name"] for each in report["kernels"]})}
    run |= {"lines": source.count("\n"), "drafting": drafting, "compiling": compiling, "load": os.getloadavg()[0]}
    print(json.dumps(run))
    if given.out:
        with given.out.open("a") as out:
            out.write(json.dumps(run) + "\n")


if __name__ == "__main__":
    main()
