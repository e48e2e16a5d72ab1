"""`cutesmith skill`: folders by client, exit codes, the table and the JSON object."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from cutesmith import __version__, cli

NAME = "cute-dsl-kernels"


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """A function that runs the verb in JSON in a project, and gives its exit code and object."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, dict]:
        code = cli.main(["skill", *map(str, arguments), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


@pytest.mark.slow
def test_the_way_of_a_copy(run, tmp_path):
    assert run("status")[0] == 7  # nothing is installed
    code, fields = run("install", "--client", "all")
    assert (code, fields["summary"]) == (0, f"cute-dsl-kernels {__version__}: 2 installed")
    claude, agents = tmp_path / ".claude/skills" / NAME, tmp_path / ".agents/skills" / NAME
    served = {Path(copy["path"]): copy["clients"] for copy in fields["copies"]}
    assert served == {claude: ["claude"], agents: ["codex", "gemini", "cursor", "copilot"]}
    assert run("status")[0] == 0
    (agents / "references/api-core.md").write_text("mine\n")
    code, fields = run("status", "--client", "cursor", "--client", "codex")
    assert (code, fields["copies"][0]["state"], fields["copies"][0]["clients"]) == (1, "changed", ["codex", "cursor"])
    code, fields = run("uninstall", "--client", "all")
    assert (code, [copy["state"] for copy in fields["copies"]]) == (0, ["absent", "foreign"])
    assert run("install", "--client", "all")[0] == 2
    assert not claude.exists()  # where one folder is refused, none is written
    code, fields = run("install", "--client", "copilot", "--force")
    assert (code, fields["copies"][0]["kept"]) == (0, ["references/api-core.md.yours"])


@pytest.mark.slow
def test_the_table_says_what_was_done_where(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cli.main(["skill", "install", "--client", "claude", "--user"]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("installed     claude ")
    assert f"{tmp_path}/.claude/skills/{NAME} ({__version__}, DSL " in first
    assert last == f"cute-dsl-kernels {__version__}: 1 installed"
    (tmp_path / ".claude/skills" / NAME / "SKILL.md").unlink()
    assert cli.main(["skill", "status", "--project", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == [f"{'':14}missing: SKILL.md", f"{'':14}→ cutesmith skill install --client claude"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["install"], 2, "install needs --client"),
        (["install", "--client", "vim"], 2, "invalid choice: 'vim'"),
        (["install", "--client", "all", "--project", "/proc/self/cmdline"], 2, "/proc/self/cmdline is not a folder"),
        (["install", "--client", "all", "--user", "--project", "/no/such"], 2, "not allowed with argument"),
        (["install", "--client", "all", "--project", "/proc"], 7, "could not be read or written"),
        (["status", "folder"], 2, "status takes no path"),
        (["archive"], 2, "archive needs the file to write"),
        (["archive", "x.rar"], 2, "an archive ends in .tar.gz, .tgz or .zip"),
        (["archive", "none/x.zip"], 7, "could not be read or written: No such file"),
        (["validate", "/no/such/folder"], 2, "has no SKILL.md"),
    ],
)
def test_wrong_use_is_a_sentence(run, tmp_path, arguments, code, message):
    found, fields = run(*arguments)
    assert (found, message in fields["summary"]) == (code, True), fields
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
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


def test_manifests_are_written_below_a_folder_where_they_are_stale(run, tmp_path):
    assert len(run("manifests", tmp_path)[1]["changed"]) == 5
    assert run("manifests", tmp_path)[1]["changed"] == []
    (tmp_path / "gemini-extension.json").write_text("{}")
    assert run("manifests", tmp_path)[1]["changed"] == ["gemini-extension.json"]
