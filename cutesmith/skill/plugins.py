"""The manifests by which clients take the repository, or a plugin archive, as a plugin: one version for all.

Sources, read in November 2026:
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

import json
import os
from pathlib import Path
from typing import Any

from cutesmith import __version__
from cutesmith.errors import UnavailableError

NAME = "cutesmith"
DESCRIPTION = "NVIDIA CuTe DSL kernels from PyTorch functions: written, proved correct, honestly timed."
KEYWORDS = ["cuda", "cutlass", "cute-dsl", "gpu", "kernel", "pytorch"]
LICENCE = "Apache-2.0"
AGENT_PLUGINS_SCHEMA = "https://agent-plugins.org/schemas/1.0.0/plugin.schema.json"
CONTEXT_FILE = "skill/GEMINI.md"
SKILLS = "./skill/"


def repository_manifests() -> dict[str, str]:
    """Path in the repository → text of each manifest there."""
    return _texts(skills=SKILLS) | {"gemini-extension.json": _text(_extension(contextFileName=CONTEXT_FILE))}


def plugin_manifests() -> dict[str, str]:
    """Path in a plugin archive → text: there the skill lies in `skills/`, where every client looks by itself."""
    portable = {"$schema": AGENT_PLUGINS_SCHEMA, **_plugin()}
    return _texts() | {"gemini-extension.json": _text(_extension()), "plugin.json": _text(portable)}


def write_manifests(root: Path) -> list[str]:
    """Write the repository's manifests below `root`; gives the paths whose text changed. Raises UnavailableError."""
    changed = []
    for name, text in repository_manifests().items():
        path = root / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        try:
            os.makedirs(path.parent, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UnavailableError(f"{path} could not be written: {error.strerror}") from error
        changed.append(name)
    return changed


def _texts(**paths: str) -> dict[str, str]:
    plugin = _text(_plugin(**paths))
    folders = (".claude-plugin", ".codex-plugin", ".cursor-plugin")
    manifests = {f"{folder}/plugin.json": plugin for folder in folders}
    return manifests | {".claude-plugin/marketplace.json": _text(_marketplace())}


def _plugin(**paths: str) -> dict[str, Any]:
    about = {"name": NAME, "version": __version__, "description": DESCRIPTION, "author": {"name": NAME}}
    return {**about, "license": LICENCE, "keywords": KEYWORDS, **paths}


def _marketplace() -> dict[str, Any]:
    plugin = {"name": NAME, "source": "./", "description": DESCRIPTION}
    return {"name": NAME, "owner": {"name": NAME}, "metadata": {"description": DESCRIPTION}, "plugins": [plugin]}


def _extension(**more: str) -> dict[str, Any]:
    return {"name": NAME, "version": __version__, "description": DESCRIPTION, **more}


def _text(fields: dict[str, Any]) -> str:
    return json.dumps(fields, indent=2) + "\n"
