"""What is released of the skill: an archive of its files, and the manifests by which clients take it as a plugin.

The same files give the same archive, byte for byte, on any day and machine. The folder in it is what `cutesmith skill
install` puts into a client's folder. As a plugin, that folder lies in `cutesmith/skills/`, and the manifests of the
clients are in `cutesmith/`. The repository itself is a plugin too. Sources, read in November 2026:
- Claude Code, `.claude-plugin/plugin.json` and `marketplace.json`: https://code.claude.com/docs/en/plugins-reference,
  https://code.claude.com/docs/en/plugins/marketplace-reference. Paths start with `./` and stay inside the plugin; the
  version stands in `plugin.json` alone; `skills` names folders that hold skills, besides `skills/`.
- Codex, `.codex-plugin/plugin.json`: https://developers.openai.com/codex/plugins/build. Its own catalogue
  (`.agents/plugins/marketplace.json`) takes no plugin that is the catalogue's own root (codex-rs/core-plugins/src/
  marketplace.rs: "local plugin source path must not be empty"), so the repository has none.
- Cursor, `.cursor-plugin/plugin.json`: https://cursor.com/docs/reference/plugins, schemas/plugin.schema.json of
  github.com/cursor/plugins (no other keys than its own).
- Gemini CLI, `gemini-extension.json`: https://geminicli.com/docs/extensions/reference. Skills are found in `skills/`
  alone; the repository's is in `skill/`, hence a context file that says where.
- Agent Plugins 1.0.0 (Cursor, Codex, VS Code, Kiro), `plugin.json` and `skills/NAME/SKILL.md`:
  https://agent-plugins.org/specification. For the plugin archive: the repository's layout is another.
- GitHub Copilot has no manifest of its own; it reads skills folders and Agent Plugins.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cutesmith import __version__
from cutesmith.checkpoints import write_atomically
from cutesmith.errors import UsageError
from cutesmith.resources import SKILL_NAME
from cutesmith.skill.content import RECORD, mode_of, record_of

DESCRIPTION = "NVIDIA CuTe DSL kernels from PyTorch functions: written, verified, honestly timed."
OWNER = {"name": "cutesmith"}
EXTENSION: Mapping[str, object] = {**OWNER, "version": __version__, "description": DESCRIPTION}
PLUGIN: Mapping[str, object] = {
    **EXTENSION,
    "author": OWNER,
    "license": "Apache-2.0",
    "keywords": ["cuda", "cutlass", "cute-dsl", "gpu", "kernel", "pytorch"],
}
MARKETPLACE: Mapping[str, object] = {
    **OWNER,
    "owner": OWNER,
    "metadata": {"description": DESCRIPTION},
    "plugins": [{**OWNER, "source": "./", "description": DESCRIPTION}],
}
AGENT_PLUGINS_SCHEMA = "https://agent-plugins.org/schemas/1.0.0/plugin.schema.json"
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


def repository_manifests() -> dict[str, str]:
    """Path in the repository → text of each manifest there."""
    return _texts({**PLUGIN, "skills": "./skill/"}, {**EXTENSION, "contextFileName": "skill/GEMINI.md"})


def plugin_manifests() -> dict[str, str]:
    """Path in a plugin archive → text: there the skill lies in `skills/`, where every client looks by itself."""
    return _texts(PLUGIN, EXTENSION) | {"plugin.json": _text({"$schema": AGENT_PLUGINS_SCHEMA, **PLUGIN})}


def _texts(plugin: Mapping[str, object], extension: Mapping[str, object]) -> dict[str, str]:
    texts = {f".{client}-plugin/plugin.json": _text(plugin) for client in ("claude", "codex", "cursor")}
    return texts | {".claude-plugin/marketplace.json": _text(MARKETPLACE), "gemini-extension.json": _text(extension)}


def _text(fields: Mapping[str, object]) -> str:
    return json.dumps(fields, indent=2) + "\n"


def write_manifests(root: Path) -> list[str]:
    """Write the repository's manifests below `root`; gives the paths whose text changed. Raises OSError."""
    texts = {root / name: text for name, text in repository_manifests().items()}
    changed = {path: text for path, text in texts.items() if not path.is_file() or path.read_text("utf-8") != text}
    for path, text in changed.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [path.relative_to(root).as_posix() for path in changed]
