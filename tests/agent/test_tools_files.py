"""`view_file`, `create_file`, `edit_file` as a model calls them."""

from __future__ import annotations

import time

import pytest

from cutesmith.agent.outcome import WriteFile
from cutesmith.agent.tools.confined_folder import MAX_BYTES
from cutesmith.agent.tools.text_edits import VIEW_CHARACTERS, difference, near_misses, numbered, occurrences


def test_what_is_created_is_seen_with_line_numbers(bench):
    assert bench.call("create_file", path="kernel.py", text="a\nb\nc\n").text == "created kernel.py, 3 lines"
    assert (
        bench.call("view_file", path="kernel.py").text == "kernel.py (3 lines, 6 bytes)\n    1  a\n    2  b\n    3  c"
    )
    part = bench.call("view_file", path="kernel.py", first_line=2, last_line=2).text
    assert part == "kernel.py (3 lines, lines 2 to 2, 6 bytes)\n    2  b"


def test_a_tool_alone_changes_nothing_on_the_disk(bench):
    outcome = bench.ask({"name": "create_file", "input": {"path": "a/kernel.py", "text": "x"}})
    assert list(bench.work.iterdir()) == []
    assert outcome.effects == (WriteFile("a/kernel.py", "x"),)


def test_two_edits_of_one_turn_see_each_other(bench):
    bench.call("create_file", path="kernel.py", text="threads = 128\n")
    bench.call("edit_file", path="kernel.py", old_text="128", new_text="256")
    told = bench.call("edit_file", path="kernel.py", old_text="threads = 256", new_text="threads = 512")
    assert (bench.work / "kernel.py").read_text() == "threads = 512\n"
    assert told.text == "edited kernel.py: 1 added, 1 removed\n@@ -1 +1 @@\n-threads = 256\n+threads = 512"


def test_a_replaced_file_tells_the_difference_and_the_same_text_is_no_effect(bench):
    bench.call("create_file", path="kernel.py", text="a\nb\n")
    assert "1 added, 1 removed" in bench.call("create_file", path="kernel.py", text="a\nc\n").text
    same = bench.call("create_file", path="kernel.py", text="a\nc\n")
    assert not same.effects and not same.is_error
    long = bench.call("create_file", path="kernel.py", text="\n".join(map(str, range(200)))).text
    assert long == "replaced kernel.py, 200 lines: 200 added, 2 removed"  # no difference that is cut


def test_a_long_file_is_shown_from_both_ends_and_can_be_paged(bench):
    lines = [f"line_{n} = {n}" for n in range(1, 3001)]
    bench.call("create_file", path="long.py", text="\n".join(lines))
    shown = bench.call("view_file", path="long.py").text
    assert len(shown) < VIEW_CHARACTERS + 300
    assert "    1  line_1 = 1\n" in shown and " 3000  line_3000 = 3000" in shown
    first, last = (int(word) for word in shown.split("  …    lines ")[1].split(" left")[0].split(" to "))
    page = bench.call("view_file", path="long.py", first_line=first, last_line=first + 400).text
    assert f"{first:>5}  line_{first} = {first}\n" in page and "left out" not in page
    assert f"{first - 1:>5}  line_{first - 1} =" in shown and f"{last + 1:>5}  line_{last + 1} =" in shown
    assert "Page with first_line" in shown


def test_a_single_endless_line_is_bounded(bench):
    bench.call("create_file", path="long.py", text="x" * 200_000)
    assert len(bench.call("view_file", path="long.py").text) < 1000


@pytest.mark.parametrize(("first", "last"), [(0, 0), (-3, 0), (9, 0), (3, 2)])
def test_a_range_outside_of_the_file_is_told(bench, first, last):
    bench.call("create_file", path="kernel.py", text="a\nb\nc\n")
    assert "lines 1 to 3" in bench.refused("view_file", path="kernel.py", first_line=first, last_line=last)


def test_an_empty_file_and_an_empty_folder_are_told(bench):
    assert bench.call("view_file").text == ". holds no files"
    bench.call("create_file", path="empty.py", text="")
    assert "empty.py (0 lines, 0 bytes)" in bench.call("view_file", path="empty.py").text


def test_a_folder_is_listed(bench):
    bench.call("create_file", path="a/b.py", text="xyz")
    bench.call("create_file", path="kernel.py", text="x")
    told = bench.call("view_file").text.splitlines()
    assert told[0].startswith(". holds 2 files") and [line.split() for line in told[1:]] == [
        ["3", "a/b.py"],
        ["1", "kernel.py"],
    ]
    assert "a/b.py" in bench.call("view_file", path="a/").text


def test_a_listing_is_bounded(bench):
    for number in range(40):
        name = "/".join(f"{number:03}" + "x" * 100 for _ in range(8))
        bench.workspace.apply(WriteFile(name, ""), number)
    assert len(bench.call("view_file").text) <= VIEW_CHARACTERS


def test_an_edit_must_be_unique(bench):
    bench.call("create_file", path="kernel.py", text="x = 1\ny = 2\nx = 1\n")
    text = bench.refused("edit_file", path="kernel.py", old_text="x = 1", new_text="x = 3")
    assert "occurs 2 times" in text and "at lines 1, 3" in text and "replace_all" in text
    bench.call("edit_file", path="kernel.py", old_text="x = 1", new_text="x = 3", replace_all=True)
    assert (bench.work / "kernel.py").read_text() == "x = 3\ny = 2\nx = 3\n"


def test_an_edit_that_does_not_fit_shows_what_is_there_instead(bench):
    bench.call("create_file", path="kernel.py", text="def kernel(gx, gy):\n    tile = gx[None, row]\n    return 0\n")
    close = bench.refused("edit_file", path="kernel.py", old_text="tile = gx[None, col]", new_text="")
    assert "    2      tile = gx[None, row]" in close
    space = bench.refused(
        "edit_file", path="kernel.py", old_text="def kernel(gx,gy):\n\ttile = gx[None,row]", new_text=""
    )
    assert "Lines 1 to 2 are the same but for white space" in space
    nothing = bench.refused("edit_file", path="kernel.py", old_text="€€€€€€€€", new_text="")
    assert "view_file" in nothing


def test_an_edit_without_sense_is_refused(bench):
    bench.call("create_file", path="kernel.py", text="x\n")
    assert "create_file" in bench.refused("edit_file", path="kernel.py", old_text="", new_text="y")
    assert "the same" in bench.refused("edit_file", path="kernel.py", old_text="x", new_text="x")
    assert "does not exist" in bench.refused("edit_file", path="other.py", old_text="x", new_text="y")


def test_an_edit_may_not_grow_a_file_past_the_limit(bench):
    bench.call("create_file", path="kernel.py", text="x" * 1000)
    text = bench.refused("edit_file", path="kernel.py", old_text="x", new_text="y" * 900, replace_all=True)
    assert str(MAX_BYTES) in text
    assert (bench.work / "kernel.py").read_text() == "x" * 1000


def test_an_edit_that_would_fill_the_memory_is_refused_before_it_does(bench):
    bench.call("create_file", path="kernel.py", text="x" * MAX_BYTES)
    huge = "y" * 900_000  # half a terabyte in all
    assert "larger" in bench.refused("edit_file", path="kernel.py", old_text="x", new_text=huge, replace_all=True)


@pytest.mark.parametrize("tool", ["view_file", "create_file", "edit_file", "backup_file", "revert_file"])
@pytest.mark.parametrize("path", ["/etc/passwd", "../../problem.py", "out/problem.py", "kernel.py", "a\nb"])
def test_no_tool_leaves_the_work_folder(bench, tool, path):
    (bench.work / "out").symlink_to(bench.root, target_is_directory=True)
    (bench.work / "kernel.py").symlink_to(bench.root / "problem.py")
    before = (bench.root / "problem.py").read_text()
    arguments = {
        "create_file": {"text": "x"},
        "edit_file": {"old_text": "torch", "new_text": "x"},
        "backup_file": {"note": "x"},
        "revert_file": {"version": "1"},
    }
    told = bench.refused(tool, path=path, **arguments.get(tool, {}))
    assert "reference_fn" not in told and "root:" not in told
    assert (bench.root / "problem.py").read_text() == before


def test_judging_refuses_a_kernel_that_is_a_link(bench):
    (bench.work / "kernel.py").symlink_to(bench.root / "problem.py")
    for tool in ("lint_kernel", "compile_kernel", "verify_kernel", "benchmark_kernel", "profile_kernel"):
        assert "link" in bench.refused(tool)
    assert not (bench.root / "judged").exists()


def test_numbers_of_occurrences_count_lines():
    assert occurrences("a\nb a\n\na", "a") == [1, 2, 4]
    assert occurrences("aaaa", "aa") == [1, 1]
    assert occurrences("x", "y") == []


def test_a_difference_is_bounded():
    old, new = "\n".join(map(str, range(1000))), "\n".join(map(str, range(2000, 3000)))
    told = difference(old, new, "kernel.py", most=20)
    assert told.startswith("1000 added, 1000 removed") and len(told.splitlines()) == 22


def test_texts_made_to_be_hard_to_compare_take_no_time():
    """Repeats just rare enough that the difference takes time that grows with the square of the lines."""
    lines = [f"line {n % 100}" for n in range(60_000)]
    begin = time.process_time()
    assert difference("\n".join(lines), "\n".join(lines[::-1]), "k") == "60000 lines in place of 60000"
    difference("\n".join(lines[:3500]), "\n".join(lines[3500:0:-1]), "k")
    near_misses("ab" * 250_000, "ba" * 250_000)
    assert time.process_time() - begin < 5


def test_a_view_keeps_to_its_limit_whatever_the_lines():
    for text in ("x" * 390 + "\n", "\n", "αβγδ" * 90 + "\n"):
        assert len(numbered(text * 5000, limit=2000)) < 2100


def test_looking_for_what_was_meant_ends_in_a_large_file():
    text = "\n".join(f"value_{n} = compute({n}, {n * 7919})" for n in range(8000))
    assert near_misses(text, "valeu_17 = compute(17, 134623)").startswith("The lines most like it")
