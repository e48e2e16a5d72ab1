"""Pages as Nsight Compute prints them, and programs that stand for it.

The pages are written from NVIDIA's documentation ("Nsight Compute CLI": Output Pages, Metrics and Units; "Kernel
Profiling Guide": Metrics Reference) and the metric names of its section files: they were not recorded on a GPU, and
their numbers are invented so that they fit together.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

from cutesmith.profiling.requests import Progress
from cutesmith.sandbox.messages import encode

COLUMNS = {
    "Process ID": "4242",
    "Process Name": "python3.11",
    "Host Name": "127.0.0.1",
    "Context": "1",
    "Stream": "7",
    "Device": "0",
    "CC": "9.0",
}
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
ELAPSED = "avg.pct_of_peak_sustained_elapsed"

COPY: dict[str, tuple[str, str]] = {
    "gpu__time_duration.sum": ("ns", "252,160"),
    "dram__bytes_read.sum": ("byte", "536,870,912"),
    "dram__bytes_write.sum": ("byte", "528,482,304"),
    f"gpu__dram_throughput.{ELAPSED}": ("%", "88.41"),
    f"gpu__compute_memory_throughput.{ELAPSED}": ("%", "88.41"),
    f"lts__throughput.{ELAPSED}": ("%", "47.20"),
    "lts__t_sector_hit_rate.pct": ("%", "50.11"),
    "l1tex__throughput.avg.pct_of_peak_sustained_active": ("%", "31.50"),
    "l1tex__t_sector_hit_rate.pct": ("%", "0"),
    f"sm__throughput.{ELAPSED}": ("%", "24.75"),
    f"sm__pipe_tensor_cycles_active.{ELAPSED}": ("%", "0"),
    "smsp__issue_active.avg.per_cycle_active": ("inst/cycle", "0.22"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "87.30"),
    "sm__maximum_warps_per_active_cycle_pct": ("%", "100"),
    "launch__occupancy_limit_registers": ("block", "16"),
    "launch__occupancy_limit_shared_mem": ("block", "32"),
    "launch__occupancy_limit_warps": ("block", "16"),
    "launch__occupancy_limit_blocks": ("block", "32"),
    "launch__occupancy_limit_barriers": ("block", "32"),
    "launch__registers_per_thread": ("register/thread", "32"),
    "launch__shared_mem_per_block_static": ("byte/block", "0"),
    "launch__shared_mem_per_block_dynamic": ("byte/block", "1,024"),
    "launch__waves_per_multiprocessor": ("", "15.52"),
    "launch__sm_count": ("SM", "132"),
    "launch__func_cache_config": ("", "CachePreferNone"),
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio": ("sector/request", "16"),
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio": ("sector/request", "16"),
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio": ("byte/sector", "32"),
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio": ("byte/sector", "32"),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": ("", "0"),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum": ("", "0"),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": ("", "0"),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum": ("", "0"),
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": ("sector", "0"),
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": ("sector", "0"),
    "derived__local_spilling_requests": ("", "0"),
    "smsp__inst_executed.avg.peak_sustained": ("inst/cycle", "(!) nan"),
    STALL.format("long_scoreboard"): ("inst", "48.0"),
    STALL.format("lg_throttle"): ("inst", "8.0"),
    STALL.format("wait"): ("inst", "2.0"),
    STALL.format("selected"): ("inst", "1.0"),
    STALL.format("not_selected"): ("inst", "0.6"),
    STALL.format("short_scoreboard"): ("inst", "0.4"),
    STALL.format("barrier"): ("inst", "0"),
}
"""A large copy by 16-byte vectors on 132 multiprocessors: nothing is wrong with it."""

SPIN = {"gpu__time_duration.sum": ("ns", "5,600"), "launch__registers_per_thread": ("register/thread", "8")}
KERNEL = "kernel_cutlass_copy_kernel_tensorptrbf16gmemalign16o40961_tensorptrbf16gmemalign16o40961_0"


def quoted(cells) -> str:
    return ",".join(f'"{cell}"' for cell in cells)


def raw_page(*launches: tuple[str, dict[str, tuple[str, str]]], grid="(32768, 1, 1)", block="(128, 1, 1)") -> str:
    """`--page raw --csv`: header, units, a launch a row; metrics that a launch lacks are empty."""
    names = list(dict.fromkeys(name for _, metrics in launches for name in metrics))
    units = {name: metrics[name][0] for _, metrics in launches for name in metrics}
    shape = {"Block Size": block, "Grid Size": grid}
    lines = [quoted(["ID", "Kernel Name", *COLUMNS, *shape, *names])]
    lines.append(quoted([""] * (2 + len(COLUMNS) + len(shape)) + [units[name] for name in names]))
    for number, (kernel, metrics) in enumerate(launches):
        values = [metrics.get(name, ("", ""))[1] for name in names]
        lines.append(quoted([number, kernel, *COLUMNS.values(), *shape.values(), *values]))
    return "\n".join(lines) + "\n"


def details_page(kernel: str, metrics: dict[str, tuple[str, str]]) -> str:
    """`--page details --csv`: a metric a row."""
    columns = [*COLUMNS, "Block Size", "Grid Size", "Section Name", "Metric Name", "Metric Unit", "Metric Value"]
    lines = [quoted(["ID", "Kernel Name", *columns])]
    for name, (unit, value) in metrics.items():
        cells = [*COLUMNS.values(), "(128, 1, 1)", "(32768, 1, 1)", "Command line profiler metrics", name, unit, value]
        lines.append(quoted(["0", kernel, *cells]))
    return "\n".join(lines) + "\n"


SURROUNDED = """\
==PROF== Connected to process 4242 (/usr/bin/python3.11)
==WARNING== Unable to access the following 2 metrics: ctc__rx_bytes_data_user.sum, ctc__tx_bytes_data_user.sum.
==PROF== Profiling "spin_kernel" - 0: 0%....50%....100% - 26 passes
==PROF== Profiling "kernel_cutlass_copy_kernel_te..." - 1: 0%....50%....100% - 26 passes
what the program printed, "quoted" or not
{table}==PROF== Disconnected from process 4242
"""

_PROGRAM = """\
#!/bin/sh
printf '%s\\n' "$@" >> {folder}/arguments
echo "$PWD $HOME" >> {folder}/places
case " $* " in *" --import "*) {imported}; exit $?;; esac
while [ $# -gt 0 ]; do
    case "$1" in
        --export) report=$2; shift 2;;
        --log-file) log=$2; shift 2;;
        {python}) break;;
        *) shift;;
    esac
done
{profiling}
"""


def telling(progress: Progress) -> str:
    """A shell command that tells this as the profiled process does."""
    return f"printf '%s\\n' {shlex.quote(json.dumps(encode(progress, Progress)))} > status.jsonl"


DONE = telling(Progress(confinement={"landlock": True}, output_bytes=536870912))
REPORT = """echo report > "$report"; echo '==PROF== Report written' > "$log" """


def fake_ncu(folder: Path, *, profiling: str = f"{DONE}\n{REPORT}", table: str = "", imported: str = "") -> str:
    """A program that is called as ncu is: it notes its arguments, does `profiling`, and prints `table` on --import."""
    (folder / "table.csv").write_text(table, encoding="utf-8")
    program = folder / "ncu"
    text = _PROGRAM.format(
        folder=folder, python=sys.executable, profiling=profiling, imported=imported or f"cat {folder}/table.csv"
    )
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)
    return str(program)


PAGE = raw_page(("spin_kernel", SPIN), (KERNEL, COPY))
