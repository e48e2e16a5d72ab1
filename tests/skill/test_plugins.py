"""Plugin manifests: one version, paths that hold, and the keys that each client's documentation names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cutesmith import __version__, resources
from cutesmith.skill import plugins
from cutesmith.skill.archive import archive_members
from cutesmith.skill.content import skill_files

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = sorted(plugins.repository_manifests())
COMMON = {"name", "version", "description", "author", "license", "keywords", "homepage", "repository"}
KEYS = {
    ".claude-plugin/plugin.json": COMMON | {"skills", "displayName"},
    ".codex-plugin/plugin.json": COMMON | {"skills", "interface", "mcpServers", "apps", "hooks"},
    ".cursor-plugin/plugin.json": COMMON | {"skills", "displayName", "publisher", "logo", "category", "tags"},
    ".claude-plugin/marketplace.json": {"name", "owner", "plugins", "metadata"},
    "gemini-extension.json": {"name", "version", "description", "contextFileName", "mcpServers", "excludeTools"},
    "plugin.json": COMMON | {"$schema", "extensions"},
}
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def strict(text: str) -> dict:
    """JSON without repeated keys, NaN or Infinity."""

    def unique(pairs):
        assert len({key for key, _ in pairs}) == len(pairs), pairs
        return dict(pairs)

    return json.loads(text, object_pairs_hook=unique, parse_constant=pytest.fail)


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_repository_has_the_manifest_of_this_version(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert text == plugins.repository_manifests()[name], "run: cutesmith skill manifests"


@pytest.mark.parametrize("make", [plugins.repository_manifests, plugins.plugin_manifests])
def test_every_manifest_has_the_keys_of_its_format_and_one_version(make):
    for name, text in make().items():
        fields = strict(text)
        assert set(fields) <= KEYS[name], name
        assert NAME.fullmatch(fields["name"]), name
        assert fields.get("version") == (None if name.endswith("marketplace.json") else __version__)
        assert len(plugins.DESCRIPTION) < 200
        for key in ("author", "owner"):
            assert set(fields.get(key, {"name": ""})) == {"name"}


def test_the_version_is_a_semantic_one():
    assert re.fullmatch(r"\d+\.\d+\.\d+([-+][0-9A-Za-z.-]+)?", __version__)


@pytest.mark.parametrize("name", [name for name in MANIFESTS if name.endswith("/plugin.json")])
def test_the_skill_is_where_the_manifest_says(name):
    path = strict((ROOT / name).read_text())["skills"]
    assert path.startswith("./")
    assert ".." not in path
    assert [p.parent.name for p in (ROOT / path).glob("*/SKILL.md")] == [resources.SKILL_NAME]


def test_the_repository_is_a_marketplace_whose_plugin_is_itself():
    fields = strict((ROOT / ".claude-plugin/marketplace.json").read_text())
    (entry,) = fields["plugins"]
    assert (entry["source"], entry["name"]) == ("./", "cutesmith")
    assert (ROOT / entry["source"] / ".claude-plugin/plugin.json").is_file()
    assert not {"skills", "version"} & set(entry), "plugin.json says it; two places would contradict each other"


def test_the_context_file_of_the_extension_names_what_exists():
    fields = strict((ROOT / "gemini-extension.json").read_text())
    text = (ROOT / fields["contextFileName"]).read_text()
    named = re.findall(r"`([\w./-]+)`", text)
    assert f"skill/{resources.SKILL_NAME}/SKILL.md" in named
    assert all((ROOT / path).exists() for path in named)
    assert len(text) < 600, "it is in the context of every conversation"


def test_a_plugin_archive_is_one_for_every_client():
    members = archive_members(skill_files(), as_plugin=True)
    skill = f"cutesmith/skills/{resources.SKILL_NAME}"
    assert {f"{skill}/SKILL.md", f"{skill}/scripts/doctor.py", f"{skill}/installation.json"} <= set(members)
    beside = {name.removeprefix("cutesmith/") for name in members if not name.startswith(skill)}
    assert beside == set(plugins.plugin_manifests())
    portable = strict(members["cutesmith/plugin.json"][0].decode())
    assert portable["$schema"] == "https://agent-plugins.org/schemas/1.0.0/plugin.schema.json"
    assert not [
        n for n in beside if "skills" in strict(members[f"cutesmith/{n}"][0].decode())
    ]  # skills/ is the default


def test_manifests_are_written_where_they_are_stale(tmp_path):
    assert sorted(plugins.write_manifests(tmp_path)) == MANIFESTS
    assert plugins.write_manifests(tmp_path) == []
    (tmp_path / "gemini-extension.json").write_text("{}")
    assert plugins.write_manifests(tmp_path) == ["gemini-extension.json"]
