"""Files in KernelBench's form, written here: the suite takes them, and the audit tries them with their parameters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cutesmith.audit.problem_audit import AuditVerdict, ProblemAuditor
from cutesmith.evals.suites import load_suite

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
FILES = {
    "level1/1_Scaled_tanh.py": """
class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()

    def forward(self, x: torch.Tensor, scale: float) -> torch.Tensor:
        return torch.tanh(x) * scale

rows, columns = 512, 16384

def get_inputs():
    x = torch.rand(rows, columns)
    return [x, 0.5]

def get_init_inputs():
    return []  # nothing
""",
    "level2/2_Linear_norm_gelu.py": '''
class Model(nn.Module):
    """A layer, a norm over the batch, dropout that evaluation leaves out."""
    def __init__(self, inputs, outputs, chance=0.1, bias=True):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=bias)
        self.norm = nn.BatchNorm1d(outputs)
        self.dropout = nn.Dropout(chance)
        self.offset = nn.Parameter(torch.randn(outputs))

    def forward(self, x):
        return F.gelu(self.dropout(self.norm(self.linear(x)))) + self.offset

batch, inputs, outputs = 1024, 96, 160

def get_inputs():
    return [torch.rand(batch, inputs)]

def get_init_inputs():
    return [[inputs, outputs], {"bias": False}]
''',
    "level3/3_Gru.py": """
class Model(nn.Module):
    def __init__(self, inputs, hidden, layers):
        super().__init__()
        self.gru = nn.GRU(inputs, hidden, layers)

    def forward(self, x, start):
        output, last = self.gru(x, start)
        return output, last

def get_inputs():
    return [torch.rand(6, 4, 10), torch.rand(2, 4, 12)]

def get_init_inputs():
    return [10, 12, 2]
""",
}
PARAMETERS = {
    "level1/1_Scaled_tanh": "x scale",
    "level2/2_Linear_norm_gelu": "x offset linear_weight norm_weight norm_bias "
    "norm_running_mean norm_running_var norm_num_batches_tracked",
    "level3/3_Gru": "x start gru_weight_ih_l0 gru_weight_hh_l0 gru_bias_ih_l0 gru_bias_hh_l0 "
    "gru_weight_ih_l1 gru_weight_hh_l1 gru_bias_ih_l1 gru_bias_hh_l1",
}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, AuditVerdict]]:
    checkout = tmp_path_factory.mktemp("checkout")
    for name, text in FILES.items():
        (checkout / "KernelBench" / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / "KernelBench" / name).write_text(HEAD + text, encoding="utf-8")
    with ProblemAuditor() as auditor:
        yield {task.id: auditor.audit(task.path) for task in load_suite("kernelbench", path=checkout).tasks}


@pytest.mark.parametrize("name", PARAMETERS)
def test_it_can_be_used_and_its_parameters_are_inputs(verdicts: dict[str, AuditVerdict], name: str) -> None:
    assert (verdicts[name].status, verdicts[name].errors) == ("accepted", ()), verdicts[name].summary
    assert [entry["name"] for entry in verdicts[name].inputs] == PARAMETERS[name].split()


def test_operations_are_counted_at_the_size_of_its_own_inputs(verdicts: dict[str, AuditVerdict]) -> None:
    assert verdicts["level2/2_Linear_norm_gelu"].work.flops == {"float32": 2 * 1024 * 96 * 160}
    assert verdicts["level1/1_Scaled_tanh"].work.bytes == 2 * 4 * 512 * 16384
