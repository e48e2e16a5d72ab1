"""The skill's trigger queries and prompts have the forms of skill-creator, so that its tools read them.

https://github.com/anthropics/skills, `skills/skill-creator`: `references/schemas.md` and `scripts/run_eval.py`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

from cutesmith import resources

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "evals" / "skill"


def read(name):
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def is_text(value):
    return isinstance(value, str) and 0 < len(value.strip()) <= 4000


def test_trigger_queries_have_the_form_and_are_enough_of_both_kinds():
    queries = read("triggers.json")
    assert all(query.keys() == {"query", "should_trigger"} and is_text(query["query"]) for query in queries)
    assert len({query["query"] for query in queries}) == len(queries)
    counts = Counter(query["should_trigger"] for query in queries)
    assert counts.keys() == {True, False} and min(counts.values()) >= 20
    near = " ".join(query["query"] for query in queries if not query["should_trigger"]).lower()
    assert all(word in near for word in ("triton", "cuda c++", "cutlass c++", "profiler", "cutile", "explain"))


def test_prompts_have_the_form_and_name_files_and_scripts_that_exist():
    whole = read("evals.json")
    assert whole.keys() == {"skill_name", "evals"} and whole["skill_name"] == resources.SKILL_NAME
    fields = {"id": int, "prompt": str, "expected_output": str, "files": list, "expectations": list}
    assert all({name: type(value) for name, value in item.items()} == fields for item in whole["evals"])
    assert [item["id"] for item in whole["evals"]] == list(range(1, len(whole["evals"]) + 1))
    for item in whole["evals"]:
        assert is_text(item["prompt"]) and is_text(item["expected_output"])
        assert len(item["expectations"]) >= 2 and all(map(is_text, item["expectations"]))
        assert all((ROOT / name).is_file() for name in item["files"])
        scripts = re.findall(r"\w+\.py", " ".join(item["expectations"]))
        assert all((ROOT / "scripts" / name).is_file() for name in scripts if name != "kernel.py")
