"""Copies of the skill in clients' folders: put there, looked at, and taken away again.

A copy is ours when its `installation.json` says so. What the user changed or added is never lost: an upgrade keeps a
changed file beside the new one (`references/faq.md.yours`), and uninstalling leaves it where it is. Links inside a
copy are never followed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cutesmith import __version__
from cutesmith.errors import UnavailableError, UsageError
from cutesmith.skill import swap
from cutesmith.skill.content import (
    KEPT_SUFFIX,
    RECORD,
    Record,
    digest,
    dsl_version,
    mode_of,
    read_record,
    record_of,
)

ABSENT, FOREIGN, BROKEN, STALE, CHANGED, CURRENT = "absent", "foreign", "broken", "stale", "changed", "current"


@dataclass(frozen=True, kw_only=True)
class Copy:
    """One folder of a client, and what was found or done there.

    `state` is absent, foreign (a folder that we did not put there), broken (files are missing), stale (of another
    version), changed (by the user) or current; `action` says what a command did, and `kept` which files of the user's
    it left or moved aside.
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


def examine(root: Path, files: Mapping[str, Path] | None = None, *, clients: tuple[str, ...] = ()) -> Copy:
    """Look at a copy and compare it with `files` (this package's, path → file); nothing is written.

    Raises UnavailableError for what cannot be read.
    """
    try:
        return _examine(root, files, clients)
    except OSError as error:
        raise UnavailableError(f"{error.filename or root} could not be read: {error.strerror or error}") from error


def _examine(root: Path, files: Mapping[str, Path] | None, clients: tuple[str, ...]) -> Copy:
    if not os.path.lexists(root):
        return Copy(path=str(root), clients=clients, state=ABSENT)
    record = None if root.is_symlink() else read_record(root)
    if record is None:
        reasons: tuple[str, ...] = (f"{root} holds no {RECORD} of cutesmith",)
        return Copy(path=str(root), clients=clients, state=FOREIGN, reasons=reasons)
    present = _present(root)
    changed = tuple(name for name, sha in present.items() if record.files.get(name, sha) != sha)
    missing = tuple(name for name in record.files if name not in present)
    reasons = () if files is None or _is_source(root, files) else tuple(_staleness(record, record_of(files)))
    return Copy(
        path=str(root),
        clients=clients,
        state=BROKEN if missing else STALE if reasons else CHANGED if changed else CURRENT,
        version=record.version,
        dsl_version=record.dsl_version,
        reasons=reasons,
        changed=changed,
        missing=missing,
        added=tuple(name for name in present if name not in record.files),
    )


def install(root: Path, files: Mapping[str, Path], *, force: bool = False, clients: tuple[str, ...] = ()) -> Copy:
    """Put a copy of `files` at `root`, all or nothing; a copy that is whole and of this version is not touched.

    Raises UsageError for a folder that is not ours (unless `force`: then all in it counts as the user's), for a link
    in the way, and UnavailableError where nothing can be written.
    """
    with _writing(root):
        before = examine(root, files, clients=clients)
        if before.state == CURRENT:
            return _done(before, "unchanged")
        refuse_foreign(root, force=force)
        staged = swap.new_folder(root)
        try:
            record = write_copy(staged, files)
            kept = _carry_over(root, staged, record, read_record(root))
            swap.replace_folder(staged, root)
        finally:
            if staged.exists():
                swap.remove(staged)
        action = {ABSENT: "installed", STALE: "upgraded", FOREIGN: "taken over"}.get(before.state, "repaired")
        return _done(examine(root, files, clients=clients), action, kept)


def refuse_foreign(root: Path, *, force: bool) -> None:
    """Raise UsageError when what stands at `root` is not ours; `force` takes a folder, never a link or a file."""
    if examine(root).state != FOREIGN:
        return
    if root.is_symlink() or not root.is_dir():
        raise UsageError(f"{root} is a link or a file", hint="Remove it first; links are not followed.")
    if not force:
        raise UsageError(
            f"{root} was not installed by cutesmith",
            hint="--force installs there; files that differ are kept beside the new ones.",
        )


def uninstall(root: Path, *, force: bool = False, clients: tuple[str, ...] = ()) -> Copy:
    """Take a copy away, but for what the user changed or added (with `force`: all of it).

    Raises UsageError for a folder that is not ours: that one stays, with or without `force`.
    """
    if not os.path.lexists(root):
        return Copy(path=str(root), clients=clients, state=ABSENT, action="nothing to do")
    with _writing(root):
        before = examine(root, clients=clients)
        if before.state == FOREIGN:
            raise UsageError(f"{root} was not installed by cutesmith", hint="Remove it yourself if it can go.")
        kept = () if force else before.changed + before.added
        if kept:
            _remove_ours(root, set(kept))
        else:
            swap.discard(root)
        for folder in (root.parent, root.parent.parent):  # only what is empty now: skills/, then .claude/ or .agents/
            with contextlib.suppress(OSError):
                folder.rmdir()
        state = FOREIGN if kept else ABSENT
        return Copy(path=str(root), clients=clients, state=state, action="uninstalled", kept=kept)


def write_copy(folder: Path, files: Mapping[str, Path]) -> Record:
    """Write the files and their record into an empty folder; SKILL.md comes last, so that no half is a skill."""
    hashes = {}
    for name, source in sorted(files.items(), key=lambda item: item[0] == "SKILL.md"):
        data, target = source.read_bytes(), folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        target.chmod(mode_of(name))
        hashes[name] = hashlib.sha256(data).hexdigest()
    record = Record(__version__, dsl_version(), hashes)
    (folder / RECORD).write_text(record.to_json(), encoding="utf-8")
    return record


def _done(copy: Copy, action: str, kept: tuple[str, ...] = ()) -> Copy:
    return replace(copy, action=action, kept=kept)


@contextlib.contextmanager
def _writing(root: Path) -> Iterator[None]:
    try:
        with swap.writing(root):
            yield
    except OSError as error:
        raise UnavailableError(
            f"{root} could not be written: {error.strerror or error} ({error.filename or root})",
            hint="What was installed there is as it was; check permissions and space.",
        ) from error


def _is_source(root: Path, files: Mapping[str, Path]) -> bool:
    """Whether the command runs from the very copy that it looks at."""
    return files.get("SKILL.md") == root / "SKILL.md"


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
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in sorted(names) + links:
            path = Path(folder) / name
            relative = path.relative_to(root).as_posix()
            if relative != RECORD:
                found[relative] = "link" if path.is_symlink() or not path.is_file() else digest(path)
    return found


def _carry_over(root: Path, staged: Path, new: Record, old: Record | None) -> tuple[str, ...]:
    """Copy what the user changed or added from `root` into `staged`; gives the paths under which it is there now."""
    recorded = old.files if old else {}
    present = _present(root) if root.is_dir() else {}
    theirs = [name for name, sha in present.items() if sha not in (recorded.get(name), new.files.get(name))]
    link = next((name for name in theirs if present[name] == "link"), None)
    if link:
        raise UsageError(f"{root / link} is a link", hint="Remove it; an installed skill holds files alone.")
    added = [name for name in theirs if name not in recorded and name not in new.files]
    changed = [name for name in theirs if name not in added]
    # Added files first: what an earlier upgrade kept has its name already.
    return tuple(_keep(root, staged, name, aside=name in changed) for name in added + changed)


def _keep(root: Path, staged: Path, name: str, *, aside: bool) -> str:
    """Copy a user's file to its own path, or `aside`: beside the new file, under a name that is free."""
    kept, number = name + KEPT_SUFFIX if aside else name, 1
    while (staged / kept).exists():
        number += 1
        kept = f"{name}{KEPT_SUFFIX}-{number}"
    (staged / kept).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(root / name, staged / kept)
    return kept


def _remove_ours(root: Path, kept: set[str]) -> None:
    """Remove every file but the kept ones, SKILL.md first and the record last; then the folders that are empty."""
    ours = sorted((name for name in _present(root) if name not in kept), key=lambda name: name != "SKILL.md")
    for name in (*ours, RECORD):
        (root / name).unlink(missing_ok=True)
    for folder, _, names in os.walk(root, topdown=False):
        path = Path(folder)
        if path.name == "__pycache__" and not path.is_symlink():
            shutil.rmtree(path)
        elif not names and path != root:
            with contextlib.suppress(OSError):
                path.rmdir()
