"""What a candidate's process gives as its outputs is read from its own folder, and from no file behind a link."""

from __future__ import annotations

import os

import pytest
import torch

from cutesmith.errors import CandidateError
from cutesmith.judge.reference_side.requests import Judge
from cutesmith.judge.rounds import same_bytes
from cutesmith.judge.transfer.given_outputs import MOST_BYTES, open_plain, require_own
from cutesmith.judge.transfer.requests import TensorFile
from cutesmith.judge.transfer.tensors import write_tensor
from cutesmith.sandbox.messages import MalformedError, decode, encode
from cutesmith.verdicts import ExitCode
from tests.judge.in_process import reference_of


def test_a_plain_file_is_the_one_that_was_opened_whatever_becomes_of_its_name(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"mine")
    with open(open_plain(path), "rb") as file:
        path.unlink()
        path.symlink_to("/etc/hostname")
        assert file.read() == b"mine"


@pytest.mark.parametrize("make", ["link", "folder link", "pipe", "folder", "nothing", "way up"])
def test_nothing_else_is_read(tmp_path, make):
    secret, own = tmp_path / "secret", tmp_path / "own"
    own.mkdir()
    secret.mkdir()
    (secret / "0").write_bytes(b"a key")
    path = own / "0"
    if make == "link":
        path.symlink_to(secret / "0")
    elif make == "folder link":
        (own / "there").symlink_to(secret)
        path = own / "there" / "0"
    elif make == "pipe":
        os.mkfifo(path)
    elif make == "folder":
        path.mkdir()
    elif make == "way up":
        path = own / ".." / "secret" / "0"
    with pytest.raises(OSError):
        open_plain(path)


def test_descriptors_are_closed_in_any_case(tmp_path):
    (tmp_path / "x").write_bytes(b"1")
    before = len(os.listdir("/proc/self/fd"))
    os.close(open_plain(tmp_path / "x"))
    for path in (tmp_path / "gone" / "x", tmp_path, tmp_path / "x" / "y"):
        with pytest.raises(OSError):
            open_plain(path)
    assert len(os.listdir("/proc/self/fd")) == before


def said(file, size):
    return TensorFile("uint8", (size,), (1,), 0, str(file), size)


@pytest.mark.parametrize("field", ["file", "bytes"])
@pytest.mark.parametrize("value", [None, 4.0, [4]])
def test_a_description_of_other_types_is_no_reply(tmp_path, field, value):
    plain = encode(said(tmp_path / "0", 4), TensorFile)
    with pytest.raises(MalformedError):
        decode({**plain, field: value}, TensorFile)


def test_an_output_that_is_said_to_be_elsewhere_is_a_forgery(tmp_path):
    require_own([said(tmp_path / name, 0) for name in "01"], tmp_path)
    for place in ("/home/somebody/key", str(tmp_path / "1"), str(tmp_path / "x" / ".." / "0")):
        with pytest.raises(CandidateError, match="output 0 is said to be in") as caught:
            require_own([said(place, 0)], tmp_path)
        assert caught.value.exit_code == ExitCode.REJECTED and caught.value.rule == "H2"


@pytest.mark.parametrize("size", [-1, MOST_BYTES + 1])
def test_a_size_that_cannot_be_true_is_a_forgery(tmp_path, size):
    require_own([said(tmp_path / "0", MOST_BYTES)], tmp_path)
    with pytest.raises(CandidateError, match="is said to have .* bytes; the judge takes up to 64 GiB") as caught:
        require_own([said(tmp_path / "0", size)], tmp_path)
    assert caught.value.exit_code == ExitCode.REJECTED and caught.value.rule == "H2"


@pytest.fixture
def judged(tmp_path):
    """A function: the reference's word on an output file that something changed once it was written."""

    def judge(change):
        reference = reference_of(tmp_path, "x + 1")
        reference.drawn["a"] = [torch.arange(64.0)]
        output = write_tensor(torch.arange(64.0) + 1, tmp_path / "0")
        change(tmp_path / "0")
        return reference.judge(Judge("a", (output,), False))

    return judge


def link_to(secret):
    return lambda path: (path.unlink(), path.symlink_to(secret))


def test_the_reference_says_nothing_of_a_file_to_which_a_link_leads(judged, tmp_path):
    assert judged(lambda path: None).violation is None
    (tmp_path / "secret").write_bytes(b"K" * 256)
    verdict = judged(link_to(tmp_path / "secret"))
    assert verdict.violation.rule == "H2" and verdict.violation.reject and verdict.outputs == ()
    assert "meddled with the file of an output" in verdict.violation.text and "75" not in verdict.violation.text


def test_a_file_that_was_cut_is_meddled_with_too(judged):
    assert judged(lambda path: os.truncate(path, 10)).violation.rule == "H2"


@pytest.mark.timeout(20)
def test_bytes_are_compared_of_plain_files_as_far_as_their_tensors_go(tmp_path):
    (tmp_path / "a").write_bytes(b"12345678")
    (tmp_path / "b").write_bytes(b"1234----longer")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    os.mkfifo(tmp_path / "pipe")

    def same(first, second, size, other_size=None):
        return same_bytes([said(tmp_path / first, size)], [said(tmp_path / second, other_size or size)], {})

    assert same("a", "b", 4) and not same("a", "b", 5) and not same("a", "b", 4, 5)
    assert not same("a", "link", 4) and not same("none", "a", 4)
    assert not same("a", "a", 1 << 60) and not same("pipe", "pipe", 4), "no file is so long, and a pipe is not a file"
