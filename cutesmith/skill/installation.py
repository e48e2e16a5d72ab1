"""Copies of the skill in clients' folders: examined, installed, upgraded and removed.

A copy is ours when its `installation.json` says so. What the user changed or added is never lost: an upgrade keeps a
changed file beside the new one (`references/faq.md.yours`), and uninstalling leaves it where it is. Links inside a
copy are never followed.

A new copy is written beside the old one and then renamed into its place. A process that is killed leaves the old copy
or the new one; after a kill just between the two renames, the next install puts the old one back.

Where clients look for skills, below a project and below the home folder (sources, read in November 2026):
- Claude Code: `.claude/skills/NAME` (https://code.claude.com/docs/en/skills).
- Codex: `.agents/skills` from the working folder up to the repository's root (https://developers.openai.com/codex/skills).
- Gemini CLI: `.gemini/skills` or its alias `.agents/skills`, which comes first (https://geminicli.com/docs/cli/skills).
- Cursor: `.agents/skills` and `.cursor/skills` (https://cursor.com/docs/skills).
- GitHub Copilot: `.github/skills`, `.claude/skills` or `.agents/skills` of a repository, `~/.copilot/skills` or
  `~/.agents/skills` (https://docs.github.com/en/copilot/concepts/agents/about-agent-skills).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from cutesmith.checkpoints import alone_in
from cutesmith.errors import UsageError
from cutesmith.resources import SKILL_NAME
from cutesmith.skill.content import KEPT_SUFFIX, RECORD, Record, digest, mode_of, read_record, record_of

SKILLS_FOLDERS = {"claude": ".claude/skills"} | dict.fromkeys("codex gemini cursor copilot".split(), ".agents/skills")
"""Client → its skills folder, relative to a project and to the home folder."""
ALL = "all"
ABSENT, FOREIGN, BROKEN, STALE, CHANGED, CURRENT = "absent", "foreign", "broken", "stale", "changed", "current"


@dataclass(frozen=True, kw_only=True)
class Copy:
    """One folder of a client, and what was found or done there.

    `state` is absent, foreign (not put there by us), broken (files are missing), stale (of another version), changed
    (by the user) or current; `action` says what a command did, `kept` which files of the user's it left or moved aside.
    """

    path: str
    clients: tuple[str, ...] = ()
    state: str
    action: str = ""
    version: str = ""
    dsl_version: str = ""
    reasons: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def targets(clients: Collection[str], base: Path) -> dict[Path, tuple[str, ...]]:
    """The skill's folder below `base` (a project or the home folder) for the clients, each with whom it serves.

    Raises UsageError when `base` is not a folder, or when a link on the way leads out of it.
    """
    root, wanted = base.resolve(), SKILLS_FOLDERS if ALL in clients else clients
    if not root.is_dir():
        raise UsageError(f"{base} is not a folder", hint="--project takes an existing folder.")
    found: dict[Path, tuple[str, ...]] = {}
    for name in (name for name in SKILLS_FOLDERS if name in wanted):
        path = (root / SKILLS_FOLDERS[name]).resolve()
        if not path.is_relative_to(root):
            raise UsageError(f"{root / SKILLS_FOLDERS[name]} leads out of {root}, to {path}", hint="Remove that link.")
        found[path / SKILL_NAME] = (*found.get(path / SKILL_NAME, ()), name)
    return found


def examine(root: Path, files: Mapping[str, Path] = MappingProxyType({})) -> Copy:
    """Look at a copy and compare it with `files` (this package's, path → file); raises OSError, writes nothing."""
    if not os.path.lexists(root):
        return Copy(path=str(root), state=ABSENT)
    record = None if root.is_symlink() else read_record(root)
    if record is None:
        return Copy(path=str(root), state=FOREIGN, reasons=(f"{root} holds no {RECORD} of cutesmith",))
    present, itself = _present(root), files.get("SKILL.md") == root / "SKILL.md"  # the command runs from this very copy
    reasons = tuple(_staleness(record, record_of(files))) if files and not itself else ()
    changed = tuple(name for name, sha in present.items() if record.files.get(name, sha) != sha)
    missing = tuple(name for name in record.files if name not in present)
    return Copy(
        path=str(root),
        state=BROKEN if missing else STALE if reasons else CHANGED if changed else CURRENT,
        version=record.version,
        dsl_version=record.dsl_version,
        reasons=reasons,
        changed=changed,
        missing=missing,
        added=tuple(name for name in present if name not in record.files),
    )


def install(root: Path, files: Mapping[str, Path], *, force: bool = False) -> Copy:
    """Put a copy of `files` at `root`, all or nothing; a copy that is whole and of this version is not touched.

    Raises UsageError for a folder that is not ours (unless `force`: then all in it counts as the user's), for a link
    in the way, and OSError where nothing can be written; then what was there is as it was.
    """
    with _folders_beside(root) as (new, old):
        before = examine(root, files)
        if before.state == CURRENT:
            return replace(before, action="unchanged")
        refuse_foreign(root, force=force)
        for name in sorted(files, key=lambda name: name == "SKILL.md"):  # last, so that no half is a skill
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(files[name], new / name)
            (new / name).chmod(mode_of(name))
        latest = record_of({name: new / name for name in files})
        (new / RECORD).write_text(latest.to_json(), encoding="utf-8")
        kept = _carry_over(root, new, latest)
        if before.state != ABSENT:
            os.rename(root, old)
        os.rename(new, root)
    action = {ABSENT: "installed", STALE: "upgraded", FOREIGN: "taken over"}.get(before.state, "repaired")
    return replace(examine(root, files), action=action, kept=kept)


def refuse_foreign(root: Path, *, force: bool) -> None:
    """Raise UsageError when what stands at `root` is not ours; `force` takes a folder, never a link or a file."""
    foreign, folder = examine(root).state == FOREIGN, root.is_dir() and not root.is_symlink()
    if foreign and not folder:
        raise UsageError(f"{root} is a link or a file", hint="Remove it first; links are not followed.")
    if foreign and not force:
        hint = "--force installs there; files that differ are kept beside the new ones."
        raise UsageError(f"{root} was not installed by cutesmith", hint=hint)


def uninstall(root: Path, *, force: bool = False) -> Copy:
    """Remove a copy, except for what the user changed or added (with `force`: all of it).

    Raises UsageError for a folder that is not ours: that one stays, with or without `force`. Raises OSError too.
    """
    if not os.path.lexists(root):
        return Copy(path=str(root), state=ABSENT, action="nothing to do")
    with _folders_beside(root) as (new, old):
        before = examine(root)
        if before.state == FOREIGN:
            raise UsageError(f"{root} was not installed by cutesmith", hint="Remove it yourself if it can go.")
        kept = () if force else before.changed + before.added
        for name in kept:
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, new / name, follow_symlinks=False)
        os.rename(root, old if kept else new)
        if kept:
            os.rename(new, root)
    with contextlib.suppress(OSError):
        for folder in (root.parent, root.parent.parent):  # only what is empty now: skills/, then .claude/ or .agents/
            folder.rmdir()
    return Copy(path=str(root), state=FOREIGN if kept else ABSENT, action="uninstalled", kept=kept)


@contextlib.contextmanager
def _folders_beside(root: Path) -> Iterator[tuple[Path, Path]]:
    """An empty folder beside `root` for what is to come and a name for what was there, for one process at a time.

    Both are removed in the end; an old folder whose successor did not come goes back to `root`.
    """
    new, old = (root.with_name(f".{root.name}.{word}") for word in ("new", "old"))

    def tidy() -> None:
        if old.exists() and not os.path.lexists(root):
            os.rename(old, root)
        for leftover in filter(Path.exists, (new, old)):
            shutil.rmtree(leftover)

    root.parent.mkdir(parents=True, exist_ok=True)
    with alone_in(root.parent):
        tidy()
        try:
            new.mkdir()
            yield new, old
        finally:
            tidy()


def _staleness(old: Record, new: Record) -> Iterator[str]:
    if old.version != new.version:
        yield f"of cutesmith {old.version}; this package is {new.version}"
    different = [name for name in {**old.files, **new.files} if old.files.get(name) != new.files.get(name)]
    if different:
        more = f" and {len(different) - 3} more" if len(different) > 3 else ""
        yield f"{len(different)} files differ from this package's: {', '.join(sorted(different)[:3])}{more}"
    if new.dsl_version and old.dsl_version != new.dsl_version:
        yield f"installed for DSL {old.dsl_version or 'none'}; the installed DSL is {new.dsl_version}"


def _present(root: Path) -> dict[str, str]:
    """Path → SHA-256 of every file of a copy but its record and caches; of a link, its path → "link"."""
    found: dict[str, str] = {}
    for path in sorted(root.rglob("*")):  # which does not follow links
        name, linked = path.relative_to(root), path.is_symlink()
        if (linked or not path.is_dir()) and str(name) != RECORD and "__pycache__" not in name.parts:
            found[name.as_posix()] = digest(path) if path.is_file() and not linked else "link"
    return found


def _carry_over(root: Path, new: Path, latest: Record) -> tuple[str, ...]:
    """Copy what the user changed or added from `root` into `new`; gives the paths under which it is there now."""
    present, record, kept = _present(root), read_record(root), list[str]()
    recorded = record.files if record else {}
    theirs = [name for name, sha in present.items() if sha not in (recorded.get(name), latest.files.get(name))]
    changed = {name for name in theirs if name in recorded or name in latest.files}
    for name in sorted(theirs, key=changed.__contains__):  # added files first: what was kept earlier has its name
        if present[name] == "link":
            raise UsageError(f"{root / name} is a link", hint="Remove it; an installed skill holds files alone.")
        numbered = (f"{name}{KEPT_SUFFIX}-{number}" for number in itertools.count(2))
        names = itertools.chain((name + KEPT_SUFFIX if name in changed else name,), numbered)
        kept.append(next(free for free in names if not (new / free).exists()))
        (new / kept[-1]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, new / kept[-1])
    return tuple(kept)
