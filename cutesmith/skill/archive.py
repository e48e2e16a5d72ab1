"""A release archive of the skill: the same files give the same bytes, on any day and machine.

The folder in it is what `cutesmith skill install` puts into a client's folder. As a plugin, that folder lies in
`cutesmith/skills/`, and the manifests of the clients are in `cutesmith/`.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cutesmith.checkpoints import write_atomically
from cutesmith.errors import UsageError
from cutesmith.resources import SKILL_NAME
from cutesmith.skill.clients import plugin_manifests
from cutesmith.skill.content import RECORD, mode_of, record_of

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first day of the zip format, whose clocks know no other way to say "no time"
_LEVEL = 9


@dataclass(frozen=True, kw_only=True)
class Archive:
    """What was written: path, SHA-256, bytes, number of files."""

    path: str
    sha256: str
    size: int
    files: int


def write_archive(out: Path, files: Mapping[str, Path], *, as_plugin: bool = False) -> Archive:
    """Write `files` and their record into `out` (.tar.gz, .tgz or .zip), replacing it in one step.

    Raises UsageError for another ending, OSError where it cannot be written.
    """
    if not out.name.endswith((".tar.gz", ".tgz", ".zip")):
        raise UsageError(f"{out}: an archive ends in .tar.gz, .tgz or .zip")
    top = f"cutesmith/skills/{SKILL_NAME}" if as_plugin else SKILL_NAME
    members = {f"{top}/{name}": (path.read_bytes(), mode_of(name)) for name, path in files.items()}
    members[f"{top}/{RECORD}"] = record_of(files).to_json().encode(), 0o644
    if as_plugin:
        members |= {f"cutesmith/{name}": (text.encode(), 0o644) for name, text in plugin_manifests().items()}
    pack = _zip if out.suffix == ".zip" else _tar
    data = pack(dict(sorted(members.items())))
    write_atomically(out, data)
    return Archive(path=str(out), sha256=hashlib.sha256(data).hexdigest(), size=len(data), files=len(members))


def _tar(members: Mapping[str, tuple[bytes, int]]) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, (data, mode) in members.items():
            member = tarfile.TarInfo(name)  # owner 0, time 0
            member.size, member.mode = len(data), mode
            archive.addfile(member, io.BytesIO(data))
    return gzip.compress(plain.getvalue(), _LEVEL, mtime=0)


def _zip(members: Mapping[str, tuple[bytes, int]]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, (data, mode) in members.items():
            member = zipfile.ZipInfo(name, _EPOCH)
            member.create_system = 3  # Unix, wherever it is written: the permissions count
            member.external_attr = (0o100000 | mode) << 16
            archive.writestr(member, data, zipfile.ZIP_DEFLATED, _LEVEL)
    return packed.getvalue()
