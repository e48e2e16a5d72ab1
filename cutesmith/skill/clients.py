"""What each client wants: the folder where it looks for skills, and its manifest of a plugin.

Sources, read in November 2026:
- Claude Code: `.claude/skills/NAME` of a project, `~/.claude/skills/NAME` (https://code.claude.com/docs/en/skills);
  `.claude-plugin/plugin.json` and `marketplace.json` (https://code.claude.com/docs/en/plugins-reference,
  https://code.claude.com/docs/en/plugins/marketplace-reference). Paths start with `./` and stay inside the plugin;
  the version stands in `plugin.json` alone; `skills` names folders that hold skills, besides `skills/`.
- Codex: `.agents/skills` from the working folder up to the repository's root, `~/.agents/skills`
  (https://developers.openai.com/codex/skills); `.codex-plugin/plugin.json` (…/codex/plugins/build). Its own catalogue
  (`.agents/plugins/marketplace.json`) takes no plugin that is the catalogue's own root (codex-rs/core-plugins/src/
  marketplace.rs: "local plugin source path must not be empty"), so the repository has none.
- Gemini CLI: `.gemini/skills` or its alias `.agents/skills`, which comes first, in the workspace and at home
  (https://geminicli.com/docs/cli/skills); `gemini-extension.json` (https://geminicli.com/docs/extensions/reference).
  An extension's skills are found in `skills/` alone; the repository's is in `skill/`, so a context file says where.
- Cursor: `.agents/skills` and `.cursor/skills` of a project, and the same at home (https://cursor.com/docs/skills);
  `.cursor-plugin/plugin.json` (https://cursor.com/docs/reference/plugins, schemas/plugin.schema.json of
  github.com/cursor/plugins: no other keys than its own).
- GitHub Copilot: `.github/skills`, `.claude/skills` or `.agents/skills` of a repository, `~/.copilot/skills` or
  `~/.agents/skills` (https://docs.github.com/en/copilot/concepts/agents/about-agent-skills); no manifest of its own.
- Agent Plugins 1.0.0 (Cursor, Codex, VS Code, Kiro, Copilot), `plugin.json` and `skills/NAME/SKILL.md`:
  https://agent-plugins.org/specification. For the plugin archive: the repository's layout is another.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from cutesmith import __version__
from cutesmith.errors import UsageError
from cutesmith.resources import SKILL_NAME

CLAUDE, AGENTS = ".claude/skills", ".agents/skills"
SKILLS_FOLDERS = {"claude": CLAUDE, "codex": AGENTS, "gemini": AGENTS, "cursor": AGENTS, "copilot": AGENTS}
"""Client → its skills folder, relative to a project and to the home folder."""
ALL = "all"

DESCRIPTION = "NVIDIA CuTe DSL kernels from PyTorch functions: written, proved correct, honestly timed."
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


def targets(clients: Iterable[str], base: Path) -> dict[Path, tuple[str, ...]]:
    """The skill's folder below `base` (a project or the home folder) for the clients, each with whom it serves.

    Raises UsageError when `base` is no folder, or when a link on the way leads out of it.
    """
    root, wanted = base.resolve(), set(clients)
    if not root.is_dir():
        raise UsageError(f"{base} is no folder", hint="--project takes an existing folder.")
    found: dict[Path, tuple[str, ...]] = {}
    for name, relative in SKILLS_FOLDERS.items():
        if wanted.isdisjoint({name, ALL}):
            continue
        path = (root / relative).resolve()
        if not path.is_relative_to(root):
            raise UsageError(f"{root / relative} leads out of {root}, to {path}", hint="Remove that link.")
        found[path / SKILL_NAME] = (*found.get(path / SKILL_NAME, ()), name)
    return found


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
