"""Instructions that compute with fewer bits than a problem's types have are told from those that it asks for."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cutesmith.compiling.compilation import compile_kernel
from cutesmith.compiling.narrowing import Compiled, described, narrow_instructions, opcodes_in, unexplained
from cutesmith.compiling.requests import CompiledFile
from cutesmith.compiling.shares import merged
from cutesmith.compiling.types_seen import types_seen
from cutesmith.verdicts import ArchReport, ExitCode

ADVERSARIAL = Path(__file__).parents[2] / "evals" / "adversarial"
NARROWING = {
    "cvt.rn.f16.f32": "f16",
    "cvt.rn.bf16x2.f32": "bf16",
    "cvt.rna.tf32.f32": "tf32",
    "cvt.rn.satfinite.e4m3x2.f32": "e4m3",
    "cvt.rn.f32.f64": "f32",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32": "tf32",
    "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16": "bf16",
    "tcgen05.mma.cta_group::1.kind::f16": "f16",
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32": "s8",
    "tanh.approx.f32": "f16",
    "ex2.approx.ftz.bf16x2": "bf16",
}
WIDE = ("cvt.f32.f16", "cvt.rni.s32.f32", "cvt.u64.u32", "ex2.approx.ftz.f32", "wgmma.fence.sync.aligned", "add.f16")


def test_narrow_instructions_are_told_from_others():
    assert narrow_instructions([*WIDE, *NARROWING]) == NARROWING


def test_types_of_the_problem_explain_what_is_as_wide():
    assert set(unexplained(NARROWING, ["float32"]).values()) == {"f16", "bf16", "tf32", "e4m3", "s8"}
    assert set(unexplained(NARROWING, ["float32", "bfloat16"]).values()) == {"e4m3", "s8"}
    assert set(unexplained(NARROWING, ["bfloat16", "int8"]).values()) == {"e4m3"}
    assert "f32" in unexplained(NARROWING, ["float64"]).values()
    assert unexplained(NARROWING, ["int32"]) == unexplained(NARROWING, ["float8_e4m3fn", "int8"]) == {}


def test_what_the_reference_narrows_is_seen():
    x = torch.ones(2, 3)
    assert types_seen(torch.relu, [x]) == ["float32"]
    assert types_seen(lambda x: (x.half() * 2).float().sum(), [x]) == ["float16", "float32"]
    assert types_seen(lambda x: x.max(-1), [x]) == ["float32", "int64"]


class Operations(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_a_layer_of_many_steps_is_seen_in_one():
    layer = torch.nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True, dtype=torch.bfloat16)
    shapes = []

    def reference(x):
        states, (hidden, cell) = layer(x)
        shapes.append((states.shape, hidden.shape, cell.shape))
        return states.float()

    x = torch.empty(3, 500, 4, dtype=torch.bfloat16, device="meta")
    layer.to("meta")
    with Operations() as done:
        assert types_seen(reference, [x]) == ["bfloat16", "float32"]
    assert done.count < 500  # without values PyTorch does each step by itself
    reference(x)
    assert shapes[0] == shapes[1]


def test_opcodes_are_read_under_guards_and_braces():
    text = "\t@!%p1 cvt.rn.f16.f32 \t%h1, %f1;\n{ cvt.rna.tf32.f32 %r1, %f2; }\n$L__BB0_1:\n\tret;\n"
    assert opcodes_in(text)[:2] == ["cvt.rn.f16.f32", "cvt.rna.tf32.f32"]
    compiled = Compiled({"cvt.rn.f16.f32": 2}, {"cvt.rn.f16.f32": "kernel.py:7"})
    told = described(narrow_instructions(compiled.counts), compiled)
    assert told == "f16 (2 x cvt.rn.f16.f32, first at kernel.py:7)"


def test_compiling_says_what_is_narrower_than_the_problem():
    verdict = compile_kernel(ADVERSARIAL / "o9_half_inside.py", ("sm_90a",))
    assert verdict.passed and verdict.summary.endswith(
        "it uses f16 (1 x cvt.rn.f16.f32), less than any type of the problem has: verify measures the error"
    )
    asked = compile_kernel(ADVERSARIAL / "o9_honest_half_asked_for.py", ("sm_90a",))
    assert asked.passed and "less than any type" not in asked.summary


def test_shares_of_one_file_say_once_what_they_narrow():
    report = ArchReport(arch="sm_90a", exit_code=ExitCode.PASSED, compile_seconds=1.0)
    shares = [CompiledFile(report, {"cvt.rna.tf32.f32": 3}), CompiledFile(report, {})]
    shares.append(CompiledFile(report, {"cvt.rna.tf32.f32": 4, "cvt.rn.f16.f32": 1}))
    assert merged(shares).narrow == {"cvt.rna.tf32.f32": 7, "cvt.rn.f16.f32": 1}
