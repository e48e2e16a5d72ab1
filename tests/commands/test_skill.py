"""`cutesmith skill`: folders by client, exit codes, the table and the JSON object."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cutesmith import __version__, cli
from cutesmith.skill.clients import SKILLS_FOLDERS, targets

NAME = "cute-dsl-kernels"


@pytest.fixture
def run(capsys, tmp_path):
    """A function that runs the verb in JSON for a project, and gives its exit code and object."""

    def run(*arguments: object, project: Path = tmp_path) -> tuple[int, dict]:
        where = [] if {"--project", "--user"} & set(arguments) else ["--project", project]
        code = cli.main(["skill", *map(str, [*arguments, *where]), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


def test_installing_for_all_clients_fills_two_folders_once(run, tmp_path):
    code, fields = run("install", "--client", "all")
    assert (code, fields["summary"]) == (0, f"cute-dsl-kernels {__version__}: 2 installed")
    copies = {tuple(copy["clients"]): Path(copy["path"]) for copy in fields["copies"]}
    assert copies == {
        ("claude",): tmp_path / ".claude/skills" / NAME,
        ("codex", "gemini", "cursor", "copilot"): tmp_path / ".agents/skills" / NAME,
    }
    assert all((path / "SKILL.md").is_file() for path in copies.values())


@pytest.mark.slow
def test_the_way_of_a_copy(run, tmp_path):
    assert run("status")[0] == 7  # nothing is installed
    assert run("install", "--client", "codex", "--client", "gemini")[1]["copies"][0]["clients"] == ["codex", "gemini"]
    assert [copy["state"] for copy in run("status")[1]["copies"]] == ["absent", "current"]
    page = tmp_path / ".agents/skills" / NAME / "references/faq-of-mine.md"
    page.write_text("added\n")
    assert run("status")[0] == 0
    (page.parent / "api-core.md").write_text("mine\n")
    code, fields = run("status", "--client", "cursor")
    assert (code, fields["copies"][0]["state"]) == (1, "changed")
    assert fields["copies"][0]["changed"] == ["references/api-core.md"]
    code, fields = run("install", "--client", "copilot")
    assert (code, fields["copies"][0]["action"]) == (0, "repaired")
    assert fields["copies"][0]["kept"] == ["references/faq-of-mine.md", "references/api-core.md.yours"]
    code, fields = run("uninstall", "--client", "all")
    assert (code, [copy["action"] for copy in fields["copies"]]) == (0, ["nothing to do", "uninstalled"])
    assert page.read_text() == "added\n"
    assert run("status")[1]["copies"][1]["state"] == "foreign"
    assert run("install", "--client", "codex")[0] == 2
    assert run("install", "--client", "codex", "--force")[0] == 0


def test_the_table_says_what_was_done_where(capsys, tmp_path):
    assert cli.main(["skill", "install", "--client", "claude", "--project", str(tmp_path)]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("installed     claude ")
    assert f"{tmp_path}/.claude/skills/{NAME} ({__version__}, DSL " in first
    assert last == f"cute-dsl-kernels {__version__}: 1 installed"
    (tmp_path / ".claude/skills" / NAME / "SKILL.md").unlink()
    assert cli.main(["skill", "status", "--project", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == [f"{'':14}missing: SKILL.md", f"{'':14}→ cutesmith skill install --client claude"]


def test_user_means_the_home_folder(tmp_path):
    command = [sys.executable, "-m", "cutesmith", "skill", "install", "--client", "gemini", "--user"]
    environment = {**os.environ, "HOME": str(tmp_path)}
    subprocess.run(command, cwd="/", env=environment, check=True, capture_output=True, timeout=60)
    assert (tmp_path / ".agents/skills" / NAME / "SKILL.md").is_file()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["install"], 2, "install needs --client"),
        (["install", "--client", "vim"], 2, "invalid choice: 'vim'"),
        (["install", "--client", "all", "--project", "/no/such/folder"], 2, "/no/such/folder is no folder"),
        (["install", "--client", "all", "--user", "--project", "/no/such"], 2, "not allowed with argument"),
        (["status", "folder"], 2, "status takes no path"),
        (["archive"], 2, "archive needs the file to write"),
        (["archive", "x.rar"], 2, "an archive ends in"),
        (["validate", "/no/such/folder"], 2, "has no SKILL.md"),
        (["status", "--client", "all", "--project", "/proc/self/cmdline"], 2, "is no folder"),
    ],
)
def test_wrong_use_is_a_sentence(run, arguments, code, message):
    found, fields = run(*arguments)
    assert (found, message in fields["summary"]) == (code, True), fields


def test_one_folder_of_somebody_else_and_none_is_written(run, tmp_path):
    theirs = tmp_path / ".agents/skills" / NAME
    theirs.mkdir(parents=True)
    (theirs / "SKILL.md").write_text("theirs")
    assert run("install", "--client", "all")[0] == 2
    assert not (tmp_path / ".claude").exists()


def test_a_project_whose_folder_leads_elsewhere_is_refused(run, tmp_path):
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    (project / ".claude").symlink_to(elsewhere)
    code, fields = run("install", "--client", "claude", project=project)
    assert (code, "leads out of" in fields["summary"]) == (2, True)
    assert list(elsewhere.iterdir()) == []


def test_a_link_inside_the_project_is_followed_to_one_folder(tmp_path):
    (tmp_path / ".agents").mkdir()
    (tmp_path / ".claude").symlink_to(".agents")
    assert targets(["all"], tmp_path) == {tmp_path.resolve() / ".agents/skills" / NAME: tuple(SKILLS_FOLDERS)}


@pytest.mark.parametrize("option", [[], ["--plugin"]])
def test_an_archive_prints_the_line_that_sha256sum_checks(capsys, tmp_path, option):
    out = tmp_path / "skill.tar.gz"
    assert cli.main(["skill", "archive", str(out), *option]) == 0
    line = capsys.readouterr().out.splitlines()[0]
    done = subprocess.run(["sha256sum", "--check"], input=line + "\n", capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"{out}: OK\n")


def test_validate_gives_its_findings_with_their_lines(run, tmp_path):
    folder = tmp_path / NAME
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\nname: other\ndescription: x\n---\n# Title\n")
    code, fields = run("validate", folder)
    assert (code, fields["status"]) == (3, "lint")
    assert [f["rule"] for f in fields["findings"] if f["line"] == 2] == ["name"]


def test_manifests_are_written_below_a_folder(run, tmp_path):
    assert len(run("manifests", tmp_path)[1]["changed"]) == 5
    assert run("manifests", tmp_path)[1]["changed"] == []
