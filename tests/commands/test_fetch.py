"""`cutesmith fetch` through its command and its script: output, exit codes, and what it needs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cutesmith.commands.fetch import main
from cutesmith.examples.index.records import write_index
from tests.examples import misbehaving_server as http
from tests.examples.fetch_samples import COMMIT, ROOT, TEXT, cutlass

ROOT_FOLDER = Path(__file__).resolve().parents[2]


@pytest.fixture
def index(tmp_path):
    """An index of two examples, one importing the other, and a checkout that has both."""
    texts = {"hopper/fmha": b"from helpers import masks\n", "helpers/masks": TEXT}
    paths = {"hopper/fmha": f"{ROOT}/cute/hopper/fmha.py", "helpers/masks": f"{ROOT}/helpers/masks.py"}
    examples = [cutlass(name, text, path=paths[name]) for name, text in texts.items()]
    write_index(examples, tmp_path / "index.jsonl")
    for name, text in texts.items():
        file = tmp_path / "checkout" / paths[name]
        file.parent.mkdir(parents=True)
        file.write_bytes(text)
    return tmp_path / "index.jsonl"


@pytest.fixture
def run(capsys, index, tmp_path):
    def run(*arguments: str, mirror: bool = True, own: bool = False) -> tuple[int, str, str]:
        more = ["--mirror", str(tmp_path / "checkout")] if mirror else []
        more += [] if own else ["--index", str(index)]
        code = main([*arguments, "--out", str(tmp_path / "out"), *more])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_path_licence_source_and_siblings_are_printed(run, tmp_path):
    code, out, err = run("cutlass/hopper/fmha")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"{tmp_path}/out/cutlass/cute/hopper/fmha.py",
        "  copied, 26 bytes, sha256 " + cutlass(data=b"from helpers import masks\n").sha256[:16] + "…",
        f"  BSD-3-Clause, NVIDIA/cutlass@{COMMIT[:12]} {ROOT}/cute/hopper/fmha.py",
        "  imports cutlass/helpers/masks: --with-siblings fetches them too",
        f"1 of 1 examples are in {tmp_path}/out",
    ]


def test_with_siblings_both_are_there(run, tmp_path):
    code, out, _ = run("fmha", "--with-siblings")
    assert (code, "--with-siblings" in out) == (0, False)
    assert (tmp_path / "out/cutlass/helpers/masks.py").read_bytes() == TEXT


def test_one_json_object(run):
    code, out, err = run("fmha", "--json")
    verdict = json.loads(out)
    assert (code, err, verdict["stage"], verdict["status"]) == (0, "", "fetch", "passed")
    assert verdict["examples"][0]["siblings"] == ["cutlass/helpers/masks"]
    assert verdict["examples"][0]["licence"] == "BSD-3-Clause"


def test_the_outline_lists_parts_and_a_part_is_printed(run, tmp_path):
    code, out, _ = run("cutesmith/gemm_sm80_bias_gelu", "--outline", mirror=False, own=True)
    listed = {line.split()[-1]: line.split()[0] for line in out.splitlines() if line.split()[0].count("-") == 1}
    text = (tmp_path / "out/cutesmith/kernels/gemm_sm80_bias_gelu.py").read_text().splitlines()
    first, last = map(int, listed["kernel_fn"].split("-"))
    assert code == 0 and listed["(head)"].startswith("1-") and "kernel_fn" in text[first - 1]
    code, out, _ = run("cutesmith/gemm_sm80_bias_gelu", "--part", "kernel_fn", mirror=False, own=True)
    assert code == 0 and out.splitlines()[1 : last - first + 2] == text[first - 1 : last]


def test_a_part_of_a_class_is_found_by_its_last_name(run, index, tmp_path):
    source = (
        b"import os\n\nclass Gemm:\n    @staticmethod\n    def kernel(a):\n        return a\n\n"
        b"    def run(self):\n        def inner(): ...\n"
    )
    example = cutlass("hopper/gemm", source, path=f"{ROOT}/gemm.py")
    write_index([example], index)
    (tmp_path / "checkout" / ROOT / "gemm.py").write_bytes(source)
    (found,) = json.loads(run("gemm", "--outline", "--json")[1])["examples"]
    assert [(part["name"], part["first_line"], part["last_line"]) for part in found["parts"]] == [
        ("(head)", 1, 2),
        ("Gemm", 3, 9),
        ("Gemm.kernel", 4, 6),
        ("Gemm.run", 8, 9),
    ]
    (part,) = json.loads(run("gemm", "--part", "kernel", "--json")[1])["examples"][0]["parts"]
    assert part["text"] == "    @staticmethod\n    def kernel(a):\n        return a\n"
    code, _, err = run("gemm", "--part", "kernels")
    assert code == 2 and "has no part 'kernels'" in err and "Gemm.kernel" in err
    assert run("gemm", "--print")[1].splitlines()[1:10] == source.decode().splitlines()


def test_what_fails_is_said_with_what_to_do(run, tmp_path):
    (tmp_path / "checkout" / ROOT / "cute/hopper/fmha.py").write_bytes(b"newer")
    code, out, _ = run("fmha", "masks")
    assert code == 1
    assert "is not the file of the index; nothing was kept" in out
    assert "expected sha256" in out
    assert "0 of" not in out
    assert "1 of 2 examples are in" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cutlass/hopper/fnha"], "Did you mean cutlass/hopper/fmha"),
        ([], "the following arguments are required: ID"),
        (["fmha", "--timeout", "0"], "--timeout is more than 0 seconds"),
        (["fmha", "--attempts", "0"], "--attempts at least 1"),
        (["fmha", "--outline", "--print"], "exclude one another"),
        (["fmha", "--part", "mask"], "has no part 'mask'"),
    ],
)
def test_bad_input_is_usage_with_a_sentence(run, arguments, message):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_offline_without_a_cache_is_exit_7(run, monkeypatch, tmp_path):
    monkeypatch.setenv("CUTESMITH_CACHE", str(tmp_path / "cache"))
    code, out, _ = run("fmha", "--offline", mirror=False)
    assert code == 7
    assert f"not in the cache {tmp_path}/cache" in out


def test_the_script_works_from_any_folder_with_an_own_kernel(run_script, tmp_path):
    done = run_script("fetch_example", "cutesmith/relu_minimal", "--out", tmp_path, "--offline", "--json", cwd="/")
    assert (done.returncode, done.stderr) == (0, "")
    (example,) = json.loads(done.stdout)["examples"]
    assert (example["state"], example["meets_contract"]) == ("copied", True)
    assert Path(example["path"]).is_file()


@pytest.mark.parametrize(
    ("variable", "value"), [("HTTPS_PROXY", "nonsense://x"), ("ALL_PROXY", "http://[::1"), ("SSL_CERT_FILE", "/none")]
)
def test_a_broken_proxy_or_certificate_of_the_environment_is_usage(run, monkeypatch, tmp_path, variable, value):
    monkeypatch.setenv(variable, value)
    monkeypatch.setenv("CUTESMITH_CACHE", str(tmp_path / "cache"))
    code, out, _ = run("fmha", mirror=False)
    assert code == 2
    assert "the proxy or the certificates of the environment" in out
    assert variable in out


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_an_interrupt_or_a_kill_ends_a_download_at_once_and_leaves_nothing(index, tmp_path, sent, code):
    reached = threading.Event()
    with http.serving() as server:
        server.answers[f"/{ROOT}/cute/hopper/fmha.py"] = [http.half_then_silent(TEXT, reached)]
        options = ["--index", index, "--out", tmp_path / "out", "--mirror", server.address]
        command = [sys.executable, ROOT_FOLDER / "scripts/fetch_example.py", "fmha", *options]
        environment = {**os.environ, "CUTESMITH_CACHE": str(tmp_path / "cache")}
        with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment) as one:
            assert reached.wait(20)
            one.send_signal(sent)
            _, errors = one.communicate(timeout=20)  # the server is silent for longer
    assert (one.returncode, errors) == (code, b"")
    assert not (tmp_path / "out").exists() and not (tmp_path / "cache").exists()


WITHOUT_HTTPX = """
import sys
sys.path[:] = [p for p in sys.path if "site-packages" not in p]
from cutesmith.commands.fetch import main
sys.exit(main(sys.argv[1:]))
"""


def test_without_httpx_a_checkout_still_serves_and_a_download_names_the_package(index, tmp_path):
    def run(*more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", WITHOUT_HTTPX, "fmha", "--index", index, "--out", tmp_path / "out", *more]
        environment = {"CUTESMITH_CACHE": str(tmp_path / "cache"), "PATH": "/usr/bin"}
        return subprocess.run(command, cwd=ROOT_FOLDER, capture_output=True, text=True, timeout=60, env=environment)

    missing = run()
    assert missing.returncode == 7, missing.stderr
    assert "pip install httpx" in missing.stdout
    assert run("--mirror", str(tmp_path / "checkout")).returncode == 0
