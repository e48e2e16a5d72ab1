"""Verify and time the kernels of `examples_index/kernels/` on this machine's GPU.

    python evals/results/h200/own_kernels/measure.py --out DIR [--quick] [--compile] [NAME …]

Verifies up to eight at a time, then times one after another, and writes DIR/verify.json and DIR/benchmark.json: what
`cutesmith verify --json` and `cutesmith benchmark --json` print, by name.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

KERNELS = Path(__file__).resolve().parents[4] / "examples_index" / "kernels"
WITHOUT = ("gemm_sm100_bias_gelu",)  # another architecture


def cutesmith(verb: str, name: str, *options: str) -> dict:
    """What the verb prints for a kernel, with its exit code and wall time; what it wrote to stderr where it fails."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "cutesmith", verb, str(KERNELS / f"{name}.py"), "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    answer = json.loads(done.stdout) if done.stdout.startswith("{") else {"stderr": done.stderr[-4000:]}
    return {"exit": done.returncode, "wall_seconds": round(time.monotonic() - begin, 1)} | answer


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="4 rounds")
    parser.add_argument("--compile", action="store_true", help="torch.compile as a baseline too")
    parser.add_argument("--no-verify", action="store_true")
    return parser.parse_args()


def verify(names: list[str], out: Path) -> None:
    """Up to eight at a time: verification needs the GPU for moments only."""
    with ThreadPoolExecutor(8) as pool:
        verdicts = dict(zip(names, pool.map(lambda name: cutesmith("verify", name, "--timeout", "60"), names)))
    (out / "verify.json").write_text(json.dumps(verdicts, indent=1) + "\n")
    for name, verdict in verdicts.items():
        summary = verdict.get("summary") or verdict.get("stderr", "")
        print(f"{name:26} exit {verdict['exit']} {verdict['wall_seconds']:6.1f} s  {summary[-300:]}")


def benchmark(names: list[str], out: Path, extra: list[str]) -> None:
    """One after another, alone on the GPU; what is there so far is kept."""
    timed: dict[str, dict] = {}
    for name in names:
        timed[name] = cutesmith("benchmark", name, *extra)
        (out / "benchmark.json").write_text(json.dumps(timed, indent=1) + "\n")
        print(
            f"{name:26} exit {timed[name]['exit']} {timed[name]['wall_seconds']:6.1f} s  {row(timed[name])}", flush=True
        )


def row(answer: dict) -> str:
    """Median device times in µs by contestant and the floor; what went wrong where there are none."""
    if not answer.get("timings"):
        return str(answer.get("summary") or answer.get("stderr"))[-300:]
    times = " · ".join(f"{timing['name']} {timing['median_us']:.1f}" for timing in answer["timings"])
    return f"{times} · floor {answer['floor_us'] or 0:.1f} · host {answer['timings'][0]['host_us']}"


def main() -> None:
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    names = options.names or sorted(p.stem for p in KERNELS.glob("*.py") if p.stem not in WITHOUT)
    if not options.no_verify:
        verify(names, options.out)
    extra = (["--quick"] if options.quick else []) + ([] if options.compile else ["--no-compile-baseline"])
    benchmark(names, options.out, extra)


if __name__ == "__main__":
    main()
