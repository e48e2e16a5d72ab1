"""Where each client looks for skills, and the folder that serves several of them at once.

Sources, read in November 2026:
- Claude Code: `.claude/skills/NAME` of a project, `~/.claude/skills/NAME` (https://code.claude.com/docs/en/skills).
- Codex: `.agents/skills` from the working folder up to the repository's root, `~/.agents/skills`
  (https://developers.openai.com/codex/skills).
- Gemini CLI: `.gemini/skills` or its alias `.agents/skills`, which comes first, in the workspace and at home
  (https://geminicli.com/docs/cli/skills).
- Cursor: `.agents/skills` and `.cursor/skills` of a project, and the same at home (https://cursor.com/docs/skills).
- GitHub Copilot: `.github/skills`, `.claude/skills` or `.agents/skills` of a repository, `~/.copilot/skills` or
  `~/.agents/skills` (https://docs.github.com/en/copilot/concepts/agents/about-agent-skills).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cutesmith.errors import UsageError
from cutesmith.resources import SKILL_NAME

CLAUDE = ".claude/skills"
AGENTS = ".agents/skills"
SKILLS_FOLDERS = {"claude": CLAUDE, "codex": AGENTS, "gemini": AGENTS, "cursor": AGENTS, "copilot": AGENTS}
"""Client → its skills folder, relative to a project and to the home folder alike."""
ALL = "all"


def targets(clients: Iterable[str], base: Path) -> dict[Path, tuple[str, ...]]:
    """The skill's folder below `base` (a project or the home folder) for the clients, each with whom it serves.

    Raises UsageError when `base` is no folder, or when a link on the way leads out of it.
    """
    wanted = set(clients)
    names = [name for name in SKILLS_FOLDERS if ALL in wanted or name in wanted]
    found: dict[Path, tuple[str, ...]] = {}
    for name in names:
        path = _inside(base, SKILLS_FOLDERS[name]) / SKILL_NAME
        found[path] = (*found.get(path, ()), name)
    return found


def _inside(base: Path, relative: str) -> Path:
    root = base.resolve()
    if not root.is_dir():
        raise UsageError(f"{base} is no folder", hint="--project takes an existing folder.")
    path = (root / relative).resolve()
    if not path.is_relative_to(root):
        raise UsageError(f"{root / relative} leads out of {root}, to {path}", hint="Remove that link.")
    return path
