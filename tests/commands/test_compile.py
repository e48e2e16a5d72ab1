"""The compile command as a person and as a program meets it."""

import json

from cutesmith.commands.compile import main, table
from cutesmith.verdicts import ArchReport, CompileVerdict, ExitCode, KernelReport
from tests.kernel_files import kernel_file

KERNEL = KernelReport(
    name="kernel_cutlass_relu_kernel_tensorptrf32gmemalign16o1_0",
    arch="sm_90a",
    registers=40,
    stack_bytes=0,
    spill_store_bytes=None,
    spill_load_bytes=None,
    static_smem_bytes=0,
    dynamic_smem_bytes=1024,
    grid=(7, 1, 1),
    block=(128, 1, 1),
    cluster=(2, 1, 1),
    occupancy_blocks=12,
    occupancy_percent=75.0,
    occupancy_limit="registers",
    widest_global_load_bits=128,
    widest_global_store_bits=64,
    tensor_core_instructions={"wgmma.mma_async": 4},
    refused=("grid x is 7: it must be a multiple of the cluster's 2",),
)


def test_table():
    report = ArchReport(arch="sm_90a", exit_code=ExitCode.DOES_NOT_COMPILE, compile_seconds=0.25, kernels=(KERNEL,))
    verdict = CompileVerdict(exit_code=ExitCode.DOES_NOT_COMPILE, summary="refused", path="k.py", archs=(report,))
    text = "\n".join(table(verdict))
    for words in ("relu_kernel: grid 7×1×1 block 128×1×1 cluster 2×1×1", "40 registers", "? B spilled", "75 %"):
        assert words in text
    for words in ("limited by registers", "load 128 bits", "wgmma.mma_async ×4", "refused: grid x is 7"):
        assert words in text


def test_script_from_another_folder(run_script, tmp_path):
    done = run_script("compile_kernel", kernel_file("early_return"), "--arch", "90a", "--json", cwd=tmp_path)
    fields = json.loads(done.stdout)
    assert done.returncode == fields["exit_code"] == ExitCode.DOES_NOT_COMPILE
    assert fields["archs"][0]["error_code"] == "UNSUP_EARLY_EXIT"
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_usage_errors(capsys, tmp_path):
    assert main([str(tmp_path / "missing.py"), "--json"]) == ExitCode.USAGE
    assert "no such file" in json.loads(capsys.readouterr().out)["summary"]
    assert main([str(kernel_file("relu_tvm_ffi")), "--arch", "sm_42"]) == ExitCode.USAGE
    assert main([str(kernel_file("relu_tvm_ffi")), "--timeout", "-1"]) == ExitCode.USAGE
    assert main([]) == ExitCode.USAGE
    assert main(["--help"]) == 0
