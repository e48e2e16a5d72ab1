"""`cutesmith skill install | uninstall | status | archive | validate | manifests`: the skill in clients' folders."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from cutesmith import __version__, resources
from cutesmith.commands._run import command, command_parser, report
from cutesmith.errors import UnavailableError, UsageError
from cutesmith.skill import installation
from cutesmith.skill.content import skill_files
from cutesmith.skill.installation import ALL, SKILLS_FOLDERS, Copy, targets
from cutesmith.skill.release import Archive, write_archive, write_manifests
from cutesmith.verdicts import ExitCode, Verdict

DESCRIPTION = """\
Install the agent skill where clients look for skills, or say how it stands there.

  install               copy SKILL.md, references, examples, scripts and the package into each client's folder
  uninstall             take that away again, but for what was changed there
  status                is it there, whole, unchanged, of this version and of the installed DSL's?
  archive OUT           a release archive (.tar.gz or .zip) with the same files; same files, same bytes
  validate [DIR]        check SKILL.md: front matter, size, links, scripts and their options, API names
  manifests [DIR]       write the plugin manifests of a checkout (version, paths)

Folders: claude .claude/skills; codex, gemini, cursor and copilot .agents/skills (once for all four); below the project,
or with --user below the home folder. An install is all or nothing; a file that you changed stays beside the new one
as NAME.yours."""

EXAMPLES = (
    "cutesmith skill install --client claude",
    "cutesmith skill install --client all --user",
    "cutesmith skill status --json",
    "cutesmith skill uninstall --client codex --project ~/work",
    "cutesmith skill archive cute-dsl-kernels.tar.gz",
    "cutesmith skill validate .claude/skills/cute-dsl-kernels",
)


@dataclass(frozen=True, kw_only=True)
class SkillVerdict(Verdict):
    """What an action found or did in each folder, or the archive that it wrote."""

    stage: ClassVar[str] = "skill"

    exit_code: ExitCode = ExitCode.PASSED
    action: str
    version: str = __version__
    copies: tuple[Copy, ...] = ()
    archive: Archive | None = None
    changed: tuple[str, ...] = ()  # manifests that were written


@command
def main(argv: list[str]) -> int:
    """Run the verb; returns its exit code."""
    parser = command_parser("skill", DESCRIPTION, examples=EXAMPLES)
    parser.add_argument("action", choices=tuple(ACTIONS))
    path_help = "archive: the file to write; validate, manifests: a folder"
    parser.add_argument("path", nargs="?", metavar="OUT|DIR", help=path_help)
    clients, client_help = (*SKILLS_FOLDERS, ALL), "whose folder; may be given several times"
    parser.add_argument("--client", action="append", choices=clients, help=client_help)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--project", metavar="DIR", help="below this folder (default: the current one)")
    where.add_argument("--user", action="store_true", help="below the home folder: for every project")
    force_help = "install over a folder that is not ours; uninstall what was changed too"
    parser.add_argument("--force", action="store_true", help=force_help)
    parser.add_argument("--plugin", action="store_true", help="archive: as a plugin, with the clients' manifests")
    options = parser.parse_args(argv)
    start = time.perf_counter()
    try:
        verdict, lines = ACTIONS[options.action](options)
    except OSError as error:
        message = f"{error.filename or options.action} could not be read or written: {error.strerror or error}"
        raise UnavailableError(message, hint="What was installed is as it was; check permissions and space.") from error
    verdict = replace(verdict, seconds=round(time.perf_counter() - start, 3))
    return report(verdict, as_json=options.json, lines=[*lines, verdict.summary])


def _copies(options: argparse.Namespace) -> tuple[Verdict, Iterable[str]]:
    """Install, uninstall or examine the copy in every folder that is asked for."""
    action, force = options.action, options.force
    if options.path:
        wrong = f"{action} takes no path, and {options.path!r} is one"
        raise UsageError(wrong, hint=f"cutesmith skill {action} --client {ALL} --project {options.path}")
    if not (asked := options.client or ([ALL] if action == "status" else [])):
        raise UsageError(f"{action} needs --client", hint=f"--client {'|'.join((*SKILLS_FOLDERS, ALL))}")
    folders = targets(asked, Path.home() if options.user else Path(options.project or "."))
    files = {} if action == "uninstall" else skill_files()
    act: Mapping[str, Callable[[Path], Copy]] = {
        "install": lambda path: installation.install(path, files, force=force),
        "uninstall": lambda path: installation.uninstall(path, force=force),
        "status": lambda path: installation.examine(path, files),
    }
    for path in folders if action == "install" else ():  # all are looked at before the first is written
        installation.refuse_foreign(path, force=force)
    copies = tuple(replace(act[action](path), clients=clients) for path, clients in folders.items())
    code, installed = ExitCode.PASSED, {copy.state for copy in copies} - {installation.ABSENT}
    if action == "status" and installed != {installation.CURRENT}:
        code = ExitCode.WRONG_RESULT if installed else ExitCode.UNAVAILABLE
    title = f"cute-dsl-kernels {__version__}: " if action == "install" else ""
    counts = Counter(copy.action or copy.state for copy in copies).items()
    summary = title + ", ".join(f"{number} {word}" for word, number in counts)
    return SkillVerdict(exit_code=code, action=action, summary=summary, copies=copies), _lines(copies)


def _lines(copies: Sequence[Copy]) -> Iterator[str]:
    for copy in copies:
        version = f" ({copy.version}, DSL {copy.dsl_version or 'none'})" if copy.version else ""
        yield f"{copy.action or copy.state:<12}  {','.join(copy.clients):<28}  {copy.path}{version}"
        yield from (f"{'':14}{reason}" for reason in copy.reasons)
        for title in ("missing", "changed", "kept"):
            if names := getattr(copy, title):
                more = f" and {len(names) - 5} more" if len(names) > 5 else ""
                yield f"{'':14}{title}: {', '.join(names[:5])}{more}"
        if copy.state in (installation.BROKEN, installation.STALE):
            yield f"{'':14}→ cutesmith skill install --client {copy.clients[0]}"


def _archive(options: argparse.Namespace) -> tuple[Verdict, Iterable[str]]:
    if not options.path:
        raise UsageError("archive needs the file to write", hint="cutesmith skill archive cute-dsl-kernels.tar.gz")
    archive = write_archive(Path(options.path), skill_files(), as_plugin=options.plugin)
    summary = f"{archive.path}: {archive.files} files, {archive.size} bytes"
    line = f"{archive.sha256}  {archive.path}"  # the form of sha256sum
    return SkillVerdict(action="archive", summary=summary, archive=archive), [line]


def _validate(options: argparse.Namespace) -> tuple[Verdict, Iterable[str]]:
    from cutesmith.skill.manifest import check_skill

    verdict = check_skill(Path(options.path) if options.path else resources.manifest().parent)
    return verdict, verdict.lines()


def _manifests(options: argparse.Namespace) -> tuple[Verdict, Iterable[str]]:
    changed = tuple(write_manifests(Path(options.path or options.project or ".")))
    written = f"{len(changed)} manifests written for {__version__}"
    summary = written if changed else f"all manifests are of {__version__}"
    return SkillVerdict(action="manifests", summary=summary, changed=changed), changed


ACTIONS = dict.fromkeys(("install", "uninstall", "status"), _copies)
ACTIONS |= {"archive": _archive, "validate": _validate, "manifests": _manifests}
