"""Machine code kept on disk: what is read is used, and what may not be trusted is made again."""

import ctypes
import os
from pathlib import Path

import pytest

from cutesmith.emulator.native import kept_code
from cutesmith.emulator.native.jit import machine_code


def text(number):
    """IR of a function that gives a number."""
    return f"define i64 @answer() {{ ret i64 {number} }}"


def answer(source):
    engine = machine_code(source)
    return ctypes.CFUNCTYPE(ctypes.c_int64)(engine.get_function_address("answer"))()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(kept_code.FOLDER, str(tmp_path / "code"))
    return tmp_path / "code"


@pytest.fixture
def kept(folder):
    """The file of `answer` = 1, which holds the code of `answer` = 2."""
    assert answer(text(2)) == 2
    (other,) = folder.iterdir()
    code = other.read_bytes()
    other.unlink()
    assert answer(text(1)) == 1
    (path,) = folder.iterdir()
    path.write_bytes(code)
    return path


def test_code_is_read_instead_of_made(kept):
    assert answer(text(1)) == 2


@pytest.mark.parametrize("change", ["part", "altered", "empty", "short"])
def test_a_file_that_is_not_whole_is_made_again(kept, change):
    data = kept.read_bytes()
    kept.write_bytes(
        {"part": data[:-1], "altered": data[:-1] + bytes([data[-1] ^ 1]), "empty": b"", "short": data[:20]}[change]
    )
    assert answer(text(1)) == 1
    assert kept.read_bytes()[32:] != data[32:]
    assert answer(text(1)) == 1


@pytest.mark.parametrize("place", ["file", "folder"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_what_others_may_write_is_not_trusted(kept, place, mode):
    path = kept if place == "file" else kept.parent
    os.chmod(path, path.stat().st_mode | mode)
    assert answer(text(1)) == 1


def test_a_file_of_another_user_is_not_trusted(kept, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: kept.stat().st_uid + 1)
    assert answer(text(1)) == 1


def test_a_link_is_not_followed(kept, tmp_path):
    kept.rename(tmp_path / "elsewhere")
    kept.symlink_to(tmp_path / "elsewhere")
    assert answer(text(1)) == 1


def test_without_a_folder_that_can_be_written_code_is_made(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(kept_code.FOLDER, str(tmp_path / "file" / "code"))
    assert answer(text(3)) == 3


def test_nothing_is_kept_unless_asked(tmp_path, monkeypatch):
    monkeypatch.delenv(kept_code.FOLDER, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert answer(text(4)) == 4
    assert not list(tmp_path.rglob("*.o"))


def test_old_files_make_room(folder):
    for number in range(kept_code.MOST_FILES + 3):
        kept_code.kept_code(str(number), lambda: b"code")
    assert len(list(folder.iterdir())) == kept_code.MOST_FILES


def test_no_half_written_file_stays(folder, monkeypatch):
    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert kept_code.kept_code("source", lambda: b"code") == b"code"
    assert not list(Path(folder).iterdir())
