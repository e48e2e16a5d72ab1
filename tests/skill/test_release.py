"""Plugin manifests: one version, paths that hold, and the keys that each client documents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cutesmith import __version__, resources
from cutesmith.skill.release import plugin_manifests, repository_manifests

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = {"name", "version", "description", "author", "license", "keywords"}
KEYS = {
    ".claude-plugin/plugin.json": PLUGIN | {"skills"},
    ".codex-plugin/plugin.json": PLUGIN | {"skills"},
    ".cursor-plugin/plugin.json": PLUGIN | {"skills"},
    ".claude-plugin/marketplace.json": {"name", "owner", "plugins", "metadata"},
    "gemini-extension.json": {"name", "version", "description", "contextFileName"},
}


@pytest.mark.parametrize("name", KEYS)
def test_the_repository_has_the_manifests_of_this_version(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert text == repository_manifests()[name], "run: cutesmith skill manifests"
    fields = json.loads(text)
    assert (set(fields), fields["name"]) == (KEYS[name], "cutesmith")
    assert fields.get("version", __version__) == __version__
    if skills := fields.get("skills"):
        assert skills.startswith("./")
        assert [path.parent.name for path in (ROOT / skills).glob("*/SKILL.md")] == [resources.SKILL_NAME]
    for entry in fields.get("plugins", ()):
        assert (entry["source"], set(entry)) == ("./", {"name", "source", "description"}), "plugin.json says the rest"
    if context := fields.get("contextFileName"):
        text = (ROOT / context).read_text()
        assert f"`skill/{resources.SKILL_NAME}/SKILL.md`" in text
        assert len(text) < 600, "it is in the context of every conversation"


def test_a_plugin_archive_holds_a_manifest_for_every_client_without_paths():
    fields = {name: json.loads(text) for name, text in plugin_manifests().items()}
    assert set(fields) == {*KEYS, "plugin.json"}
    assert set(fields["plugin.json"]) == PLUGIN | {"$schema"}
    assert not [name for name in fields if {"skills", "contextFileName"} & set(fields[name])], "skills/ is the default"
