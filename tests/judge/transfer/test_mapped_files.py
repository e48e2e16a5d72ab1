"""Files between the judge's processes: written over in the pages that are there, read as they are now."""

from __future__ import annotations

import os

import pytest
import torch

from cutesmith.errors import UnavailableError
from cutesmith.judge.transfer import mapped_files, tensors
from cutesmith.judge.transfer.mapped_files import MappedFiles


@pytest.fixture
def files():
    return MappedFiles()


def fill(files, path, values):
    files.to_write(path, len(values)).copy_(torch.tensor(values, dtype=torch.uint8))


def test_a_file_is_written_over_in_the_same_pages(files, tmp_path):
    first = files.to_write(tmp_path / "x", 8192)
    assert files.to_write(tmp_path / "x", 8192).data_ptr() == first.data_ptr()
    assert files.to_write(tmp_path / "x", 4096).data_ptr() == first.data_ptr()
    assert (tmp_path / "x").stat().st_size == 8192


def test_a_reader_sees_what_was_written_last_by_any_process(files, tmp_path):
    fill(files, tmp_path / "x", [1, 2, 3])
    theirs = MappedFiles()
    assert theirs.to_read(tmp_path / "x", 3).tolist() == [1, 2, 3]
    fill(files, tmp_path / "x", [4, 5, 6, 7])
    assert theirs.to_read(tmp_path / "x", 3).tolist() == [4, 5, 6]
    assert theirs.to_read(tmp_path / "x", 4).tolist() == [4, 5, 6, 7]


def test_another_file_under_the_same_name_is_not_taken_for_the_one_that_is_mapped(files, tmp_path):
    fill(files, tmp_path / "x", [1, 2, 3])
    assert files.to_read(tmp_path / "x", 3).tolist() == [1, 2, 3]
    (tmp_path / "y").write_bytes(b"\7\7\7")
    os.replace(tmp_path / "y", tmp_path / "x")
    assert files.to_read(tmp_path / "x", 3).tolist() == [7, 7, 7]
    fill(files, tmp_path / "x", [8, 9, 8])
    assert (tmp_path / "x").read_bytes() == b"\x08\x09\x08"


def test_a_file_that_is_too_short_is_no_tensor(files, tmp_path):
    (tmp_path / "x").write_bytes(b"123")
    with pytest.raises(ValueError):
        files.to_read(tmp_path / "x", 4)


def test_a_large_file_does_not_stay_mapped(files, tmp_path, monkeypatch):
    monkeypatch.setattr(mapped_files, "KEPT_BYTES", 4096)
    fill(files, tmp_path / "x", [1] * 5000)
    assert not files._mappings and (tmp_path / "x").read_bytes() == b"\1" * 5000


def test_no_room_is_said_before_a_byte_is_written(files, tmp_path):
    with pytest.raises(UnavailableError, match=r"no room for \d+ MiB .*(No space left|File too large)"):
        files.to_write(tmp_path / "x", 1 << 60)


def test_a_shorter_tensor_over_a_longer_one_and_an_empty_one(tmp_path):
    long, short = torch.arange(100.0), torch.arange(7.0).neg()
    tensors.write_tensor(long, tmp_path / "0")
    described = tensors.write_tensor(short, tmp_path / "0")
    assert described.bytes == 28 and torch.equal(tensors.read_tensor(described, "cpu"), short)
    assert tensors.read_tensor(tensors.write_tensor(torch.empty(0, 3), tmp_path / "0"), "cpu").shape == (0, 3)
