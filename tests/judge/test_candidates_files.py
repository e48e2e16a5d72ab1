"""Files that the candidate's process names may be anything: the judge neither waits for them nor falls over them."""

from __future__ import annotations

import os

import pytest

from cutesmith.judge.rounds import same_bytes
from cutesmith.judge.transfer.requests import TensorFile


def described(path, size):
    return [TensorFile("uint8", (size,), (1,), 0, str(path), size)]


def test_only_as_many_bytes_count_as_a_tensor_has(tmp_path):
    (tmp_path / "a").write_bytes(b"12345678")
    (tmp_path / "b").write_bytes(b"1234----longer")
    assert same_bytes(described(tmp_path / "a", 4), described(tmp_path / "b", 4), {})
    assert not same_bytes(described(tmp_path / "a", 5), described(tmp_path / "b", 5), {})
    assert not same_bytes(described(tmp_path / "a", 4), described(tmp_path / "b", 5), {})


@pytest.mark.timeout(20)
def test_a_size_that_is_no_files_and_a_pipe_are_no_equal_bytes(tmp_path):
    (tmp_path / "a").write_bytes(b"1234")
    os.mkfifo(tmp_path / "pipe")
    assert not same_bytes(described(tmp_path / "a", 1 << 60), described(tmp_path / "a", 1 << 60), {})
    assert not same_bytes(described(tmp_path / "pipe", 4), described(tmp_path / "pipe", 4), {})
    assert not same_bytes(described(tmp_path / "none", 4), described(tmp_path / "a", 4), {})
