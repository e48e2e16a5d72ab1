"""Single instructions against what an H200 wrote: every form, edge values and random bits; the survey of its MUFU."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.instructions.table import expand
from evals.studies.emulator import differential, unit_survey
from evals.studies.emulator.emulated import execute
from evals.studies.emulator.instruction_forms import GROUPS, Form, forms
from evals.studies.emulator.instruction_operands import operands


@pytest.mark.sampled(5)
@pytest.mark.parametrize("group", GROUPS)
def test_every_form_gives_the_bits_that_an_h200_gave(group):
    kept = differential.load(differential.DATA, group)
    assert {form.text for form in forms()[group]} == set(kept)
    found = differential.replay(list(forms()[group]), kept, execute)
    wrong = [one.line() for one in found if not isinstance(one, differential.Comparison) or one.differing]
    assert not wrong, "\n".join(wrong[:10])


KEPT = json.loads(unit_survey.DATA.read_text())["checksums"]


@pytest.mark.parametrize("one", unit_survey.RANGES, ids=lambda one: one.name.replace(" ", "-"))
def test_the_unit_gives_the_bits_of_a_stretch_of_mantissas(one):
    assert not unit_survey.differing(one, KEPT[one.name], execute, sample=True)


def test_a_wrong_bit_is_found_and_shown():
    form = Form("add.f32 f32, f32, f32", 512)
    right = differential.run(differential.Batch((form,)), execute)[form]
    wrong = right.copy()
    wrong[0, 300] ^= np.uint64(1)
    found = differential.compare(form, right, wrong)
    assert (found.differing, abs(found.ulp)) == (1, 1)
    shown = [f"{int(operands('f32', place, 512)[300]):08x}" for place in (0, 1)]
    assert " ".join(shown) in found.line()


def test_a_wrong_checksum_is_found():
    one = unit_survey.RANGES[0]
    kept = list(KEPT[one.name])
    kept[len(kept) // 2] ^= 1
    assert unit_survey.differing(one, kept, execute, sample=True) == [
        one.first + unit_survey.STRETCH * (len(kept) // 2)
    ]


def test_distances_see_signs_of_zero_and_nan():
    form = Form("neg.f32 f32, f32", 384)
    words = np.zeros((1, 384), np.uint64)
    for different in (0x80000000, 0x7FFFFFFF):
        other = words.copy()
        other[0, 5] = different
        assert differential.compare(form, words, other).differing == 1


def test_results_survive_being_kept(tmp_path):
    form = Form("setp.lt.f32 p|p, f32, f32; mov.b64 b64, b64", 384)
    rows = np.stack([np.arange(384) % 2, np.arange(384) % 3 % 2, np.arange(384) * 2**50]).astype(np.uint64)
    differential.save(tmp_path, "some", {form: rows}, "no device")
    assert (differential.load(tmp_path, "some")[form.text] == rows).all()


def test_changed_operands_are_noticed(tmp_path):
    form = Form("neg.f32 f32, f32", 384)
    path = differential.save(tmp_path, "some", {form: np.zeros((1, 384), np.uint64)}, "no device")
    kept = dict(np.load(path))
    kept["header"] = np.frombuffer(kept["header"].tobytes().replace(b'f32, f32"', b'f32, s32"'), np.uint8)
    np.savez_compressed(path, **kept)
    with pytest.raises(ValueError, match="record again"):
        differential.load(tmp_path, "some")


def test_a_form_that_is_not_executed_is_named():
    form = Form("vabsdiff4.u32.u32.u32 b32, b32, b32, b32", 128)
    found = differential.replay([form], {form.text: np.zeros((1, 128), np.uint64)}, execute)
    assert [type(one) for one in found] == [differential.Refusal]
    assert "vabsdiff4.u32.u32.u32" in found[0].line()
    with pytest.raises(UnsupportedInstruction):
        differential.run(differential.Batch((form,)), execute)


def test_patterns_expand_as_in_a_shell():
    assert expand("a{,.b}.{c,d}") == ["a.c", "a.d", "a.b.c", "a.b.d"]
    assert expand("{{x,y}}{1,2}") == ["{x,y}1", "{x,y}2"]
    form = Form("lop3.or.b32 b32|p, b32, b32, b32, 0x96, !p")
    assert (form.destinations, form.sources) == (("b32", "p"), ("b32", "b32", "b32", "p"))
    assert form.ptx(["%d", "%q"], ["%a", "%b", "%c", "%r"]) == "\tlop3.or.b32 %d|%q, %a, %b, %c, 0x96, !%r;"
