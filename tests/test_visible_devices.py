"""Which GPU a program would get: nvidia-smi's list and CUDA_VISIBLE_DEVICES, on a machine that need not have one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cutesmith.devices import Device, visible_devices

UUIDS = ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "GPU-8932ffff-d72c-4106-c12f-20bd9faed9f6", "GPU-5f1e0a11-0000")
GPUS = [Device(index, f"NVIDIA {name}", (9, 0), "580.1", 0, UUIDS[index]) for index, name in enumerate(("A", "B", "C"))]


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("1", [1]),
        ("2, 0", [2, 0]),
        ("0,2,-1,1", [0, 2]),  # the guide's own example
        ("0,7,1", [0]),
        ("1,1", [1]),
        ("GPU-5f1e", [2]),
        ("GPU-8932f9,GPU-8932ff", [0, 1]),
        ("GPU-8932f", []),  # of two devices
        ("5f1e", []),
        ("NoDevFiles", []),
        ("MIG-GPU-5f1e0a11-0000/1/0", [2]),
        ("MIG-41b35014-542d-57e3-a8e2-b4f1e1b2a1d2", [0]),
    ],
)
def test_what_a_list_leaves(visible, indices):
    assert [device.index for device in visible_devices(GPUS, visible)] == indices


SMI = "#!/bin/sh\n" + "".join(
    f'echo "{gpu.index}, {gpu.name}, 9.0, {gpu.driver}, 143771, {gpu.uuid}"\n' for gpu in GPUS
)
ASK = "from cutesmith.devices import current_device as c; d = c(); print(d and (d.name, d.uuid, d.memory_bytes >> 20))"


@pytest.mark.parametrize(("visible", "name"), [("2", "NVIDIA C"), (UUIDS[1], "NVIDIA B"), ("", None), ("9", None)])
def test_the_current_device_is_the_first_visible_one(write_file, tmp_path, visible, name):
    write_file(SMI, "bin/nvidia-smi").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": visible}
    done = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=True)
    expected = None if name is None else (name, UUIDS[ord(name[-1]) - ord("A")], 143771)
    assert done.stdout.strip() == str(expected)
