"""Fetching over HTTP from a real server that misbehaves in every way that servers do."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone
from email.utils import format_datetime
from pathlib import Path

import pytest

from cutesmith.errors import UsageError
from cutesmith.examples.fetch.downloading import Limits
from cutesmith.examples.fetch.fetching import FetchOptions, fetch_examples
from cutesmith.verdicts import ExitCode, FetchedExample
from tests.examples import misbehaving_server as http
from tests.examples.fetch_samples import COMMIT, TEXT, cutlass

QUICK = Limits(timeout=0.3, deadline=0.6, attempts=3, backoff=0.01, patience=0.05, max_bytes=100_000)
UNHURRIED = replace(QUICK, timeout=20, deadline=40)  # where time is not what is tested: a busy machine is slow
EXAMPLE = cutlass()
PATH = f"/{EXAMPLE.path}"


@pytest.fixture
def server() -> Iterator[http.MisbehavingServer]:
    with http.serving() as running:
        yield running


@pytest.fixture
def fetch(server, tmp_path):
    """Fetch examples (default: one) from the server; keywords are FetchOptions."""

    def run(*examples, ids=(), index=None, limits=QUICK, **options):
        examples = examples or (EXAMPLE,)
        options = {"out": tmp_path / "out", "mirror": server.address, "cache": tmp_path / "cache", **options}
        ids = ids or [example.id for example in examples]
        return fetch_examples(ids, index or examples, FetchOptions(limits=limits, **options))

    return run


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def only(verdict) -> FetchedExample:
    (example,) = verdict.examples
    return example


def test_an_example_is_downloaded_checked_and_put_where_its_imports_hold(server, fetch, tmp_path):
    server.answers[PATH] = [http.whole(TEXT)]
    verdict = fetch()
    done = only(verdict)
    assert (verdict.exit_code, done.state, done.bytes) == (0, "downloaded", len(TEXT))
    assert Path(done.path) == tmp_path / "out/cutlass/cute/hopper/dense_gemm.py"
    assert Path(done.path).read_bytes() == TEXT
    assert done.licence == "BSD-3-Clause"
    assert done.origin == f"NVIDIA/cutlass@{COMMIT[:12]} {EXAMPLE.path}"
    assert server.headers[0]["user-agent"].startswith("cutesmith/")


def test_the_commit_is_filled_into_a_mirror_and_a_redirect_is_followed(server, fetch):
    server.answers[f"/raw/{COMMIT}{PATH}"] = [http.redirect("/moved")]
    server.answers["/moved"] = [http.whole(TEXT)]
    assert only(fetch(mirror=f"{server.address}/raw/{{commit}}/")).state == "downloaded"


def test_the_second_time_no_server_is_asked_and_a_refresh_asks_with_the_etag(server, fetch, tmp_path):
    server.answers[PATH] = [http.by_etag(TEXT, '"v1"')]
    fetch()
    ways = ({}, {"offline": True}, {"refresh": True, "out": tmp_path / "third"})
    again = [only(fetch(**{"out": tmp_path / "other", **more})) for more in ways]
    assert [done.state for done in again] == ["cached", "unchanged", "cached"]
    assert again[-1].note == "the server has not changed it"
    assert [head.get("if-none-match") for head in server.headers] == [None, '"v1"']


def test_a_cache_that_was_changed_on_disk_is_not_believed(server, fetch, tmp_path):
    server.answers[PATH] = [http.by_etag(TEXT, '"v1"')]
    fetch()
    (tmp_path / "cache/examples" / EXAMPLE.sha256).write_bytes(b"changed")
    assert only(fetch(out=tmp_path / "other")).state == "downloaded"
    assert "if-none-match" not in server.headers[1]


@pytest.mark.parametrize(
    "first",
    [
        http.status(500),
        http.status(503),
        http.status(429, Retry_After=0),
        http.status(429, Retry_After="soon"),
        http.announced(len(TEXT), TEXT[:100]),
        http.silent,
    ],
    ids=["500", "503", "429", "429 nonsense", "cut in the middle", "silent"],
)
def test_what_passes_is_tried_again(server, fetch, first):
    server.answers[PATH] = [first, http.whole(TEXT)]
    assert only(fetch()).state == "downloaded"
    assert server.asked[PATH] == 2


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("answer", "kind", "code", "asked", "said"),
    [
        (http.status(404), "not_found", 7, 1, "HTTP 404"),
        (http.status(403), "server", 7, 1, "HTTP 403"),
        (http.status(500), "server", 7, 3, "HTTP 500"),
        (http.status(429, Retry_After=3600), "server", 7, 1, "come back in 3600 s"),
        (http.announced(len(TEXT), TEXT[:100]), "broken_off", 7, 3, "broke off"),
        (http.announced(100, TEXT), "hash_mismatch", 1, 1, "nothing was kept"),
        (http.whole(b"<html>sign in</html>"), "hash_mismatch", 1, 1, EXAMPLE.sha256),
        (http.whole(b""), "hash_mismatch", 1, 1, "it has   sha256 e3b0c44298fc"),
        (http.redirect(PATH), "server", 7, 6, "redirects more than 5 times"),
        (http.redirect("file:///etc/passwd"), "bad_address", 2, 1, "unsupported protocol"),
        (http.announced(10**9, b"x"), "too_large", 1, 1, "announces 1000000000 bytes"),
        (http.endless, "too_large", 1, 1, "does not end"),
        (http.dripping(TEXT, 0.02), "timed_out", 6, 1, "was not whole after 0.6 s"),
        (http.silent, "timed_out", 6, 3, "was silent for 0.3 s"),
        (lambda handler: handler.wfile.write(b"SSH-2.0 hello\r\n\r\n"), "broken_off", 7, 3, "broke off"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else None,
)
def test_what_does_not_pass_is_said_and_nothing_is_kept(server, fetch, tmp_path, answer, kind, code, asked, said):
    server.answers[PATH] = [answer]
    start = time.monotonic()
    verdict = fetch(limits=QUICK if kind == "timed_out" else UNHURRIED)
    done = only(verdict)
    assert (done.state, done.kind, int(verdict.exit_code)) == ("failed", kind, code)
    assert said in done.error
    assert done.hint
    assert server.asked[PATH] == asked
    assert files(tmp_path) == []
    assert time.monotonic() - start < 20  # a silent server would go on for a minute


def test_a_retry_after_is_waited_for_as_seconds_and_as_a_date(server, fetch):
    now = format_datetime(datetime.now(timezone.utc), usegmt=True)
    server.answers[PATH] = [http.status(503, Retry_After=now), http.status(503, Retry_After=1), http.whole(TEXT)]
    start = time.monotonic()
    assert only(fetch(limits=Limits(timeout=1, attempts=3, backoff=9, patience=2))).state == "downloaded"
    assert 0.9 < time.monotonic() - start < 8, "not the 9 seconds of its own"


def test_without_network_or_offline_is_exit_7_with_what_works_without(fetch, server):
    with socket.socket() as closed:  # bound, never listening: a connection is refused at once
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        for options, kind in (({"mirror": address}, "no_network"), ({"offline": True}, "not_cached")):
            verdict = fetch(limits=UNHURRIED, **options)
            assert (verdict.exit_code, only(verdict).kind) == (ExitCode.UNAVAILABLE, kind)
            assert "--offline" in only(verdict).hint and "--mirror" in only(verdict).hint
    assert server.asked.total() == 0


def test_a_path_that_is_gone_names_the_examples_that_come_closest(fetch):
    others = (
        cutlass("hopper/dense_gemm_persistent"),
        cutlass("ampere/dense_gemm", arch=("sm_80",)),
        cutlass("hopper/fmha", operation="attention"),
    )
    done = only(fetch(ids=[EXAMPLE.id], index=(EXAMPLE, *others)))
    assert (done.kind, "the path has moved" in done.error) == ("not_found", True)
    assert "Near to it: cutlass/hopper/dense_gemm_persistent, cutlass/ampere/dense_gemm. " in done.hint


@pytest.mark.parametrize("mirror", ["ftp://127.0.0.1/x", "http://", "http://[::1"])
def test_an_address_that_is_none_is_usage(fetch, mirror):
    verdict = fetch(mirror=mirror)
    assert (verdict.exit_code, only(verdict).kind) == (ExitCode.USAGE, "bad_address")


def test_several_are_fetched_at_once_and_one_that_fails_stops_no_other(server, fetch):
    examples = [cutlass(f"hopper/number_{n}", f"text {n}\n".encode()) for n in range(12)]
    at_once, most = [], []

    def slow(n: int) -> http.Answer:
        def answer(handler) -> None:
            at_once.append(n)
            most.append(len(at_once))
            time.sleep(0.1)
            at_once.remove(n)
            (http.status(404) if n == 5 else http.whole(f"text {n}\n".encode()))(handler)

        return answer

    server.answers |= {f"/{example.path}": [slow(n)] for n, example in enumerate(examples)}
    verdict = fetch(*examples)
    states = [example.state for example in verdict.examples]
    assert states == ["downloaded"] * 5 + ["failed"] + ["downloaded"] * 6
    assert verdict.exit_code == ExitCode.UNAVAILABLE
    assert verdict.summary.startswith("11 of 12 examples are in ")
    assert 2 < max(most) <= QUICK.parallel


def test_one_id_fetched_by_many_at_once_is_whole(server, fetch, tmp_path):
    server.answers[PATH] = [http.whole(TEXT)]
    with ThreadPoolExecutor(6) as pool:
        verdicts = list(pool.map(lambda _: fetch(), range(6)))
    assert {verdict.exit_code for verdict in verdicts} == {ExitCode.PASSED}
    assert [path.read_bytes() for path in files(tmp_path / "out")] == [TEXT]


def test_ids_are_named_once_by_their_last_part_and_an_unknown_one_is_usage(server, fetch):
    server.answers[PATH] = [http.whole(TEXT)]
    assert only(fetch(ids=[EXAMPLE.id, EXAMPLE.id])).state == "downloaded"
    assert only(fetch(ids=["dense_gemm"], index=(EXAMPLE,))).id == EXAMPLE.id
    with pytest.raises(UsageError, match="no example 'dense_gemm'"):
        fetch(ids=["dense_gemm"], index=(EXAMPLE, cutlass("ampere/dense_gemm")))
    with pytest.raises(UsageError, match="no example 'cutlass/hoper/dense_gem'") as error:
        fetch(ids=[EXAMPLE.id, "cutlass/hoper/dense_gem"], index=(EXAMPLE,))
    assert error.value.hint == f"Did you mean {EXAMPLE.id}?"
    assert server.asked.total() == 1


def test_a_cache_that_cannot_be_written_does_not_stop_a_fetch(server, fetch, tmp_path):
    server.answers[PATH] = [http.whole(TEXT)]
    (tmp_path / "cache").write_text("a file where a folder should be")
    done = only(fetch())
    assert done.state == "downloaded"
    assert done.note.startswith(f"not kept in the cache {tmp_path / 'cache'}")


def test_progress_hears_of_every_example_and_the_event_loop_of_another_thread_is_no_matter(server, tmp_path):
    server.answers[PATH] = [http.whole(TEXT)]
    heard: list[FetchedExample] = []
    options = FetchOptions(out=tmp_path / "o", cache=tmp_path / "c", mirror=server.address, limits=QUICK)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(fetch_examples, [EXAMPLE.id], (EXAMPLE,), options, progress=heard.append).result(10)
    assert [done.state for done in heard] == ["downloaded"]
