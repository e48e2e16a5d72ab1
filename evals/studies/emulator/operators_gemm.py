"""A GEMM of nvidia-cutlass-operators on small bf16 matrices, against float64: run by foreign_scripts.py.

python operators_gemm.py SM ROWS COLUMNS DEPTH
"""

import sys

import cutlass.operators
import torch

TOLERANCE = 2**-7  # of bfloat16 results that are rounded once


def main():
    """Multiply by the first operator that is made for the architecture, and compare."""
    sm, (m, n, k) = sys.argv[1], map(int, sys.argv[2:5])
    torch.manual_seed(0)
    a, b = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in ((m, k), (k, n)))
    out = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
    arguments = cutlass.operators.GemmArguments(a, b, out, accumulator_type=torch.float32)
    found = cutlass.operators.get_operators(arguments, target_sm=sm)
    named = f"sm{sm.rstrip('a')}"
    operator = next(one for one in found if named in one.metadata.operator_name.lower())
    print(operator.metadata.operator_name)
    operator.run(arguments)
    torch.testing.assert_close(out.double(), a.double() @ b.double(), rtol=TOLERANCE, atol=TOLERANCE)


main()
