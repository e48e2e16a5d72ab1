"""`cutesmith verify FILE`: whether a kernel computes what its reference computes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from cutesmith.commands._run import command, log_lines, report, unconfined_lines, verb_parser
from cutesmith.errors import UsageError
from cutesmith.judge.rounds import VerifyOptions
from cutesmith.judge.verification import verify_kernel
from cutesmith.timing.entries import import_for_gpu
from cutesmith.verbs.kernel_verbs import VERIFY
from cutesmith.verdicts import CaseOutcome, OutputError, Precision, VerifyVerdict

DESCRIPTION = """\
Verify a kernel: does kernel_fn compute reference_fn, and honestly?

kernel_fn runs in a confined process without its reference, on inputs drawn from a secret seed: several draws of
get_inputs() and of every set of get_input_sets(), behind the same and new pointers, and inputs derived from them: by
kinds of inputs, zeros, equal values, offsets of both signs, ends of ranges, NaN and Inf; other masks, integers and
Python scalars; inputs that are drawn as ones or as a range without that structure. With get_input_sets, or
DERIVED_SHAPES = True, also odd sizes, size 1, empty and non-contiguous tensors, which a kernel may refuse by raising.
Outputs are compared with a float64 reference."""

EXAMPLES = (
    "cutesmith verify kernel.py",
    "cutesmith verify kernel.py --rtol 1e-3 --atol 1e-3 --json",
    "cutesmith verify kernel.py --problem problem.py      reference and inputs from another file",
    "cutesmith verify kernel.py --quick                   few derived values, for an inner loop; the status says so",
    "cutesmith verify kernel.py --on emulator             no GPU: executed on the CPU, races and bounds checked",
    "cutesmith verify kernel.py --on emulator --orders 4  launches with TMA also in other orders of completion",
    "cutesmith verify kernel.py --on compile              everything but the values",
)


@command
def main(argv: list[str]) -> int:
    """Run the command; returns its exit code."""
    options = verb_parser(VERIFY, DESCRIPTION, examples=EXAMPLES).parse_args(argv)
    require_tolerances(options.rtol, options.atol)
    if options.seeds < 1 or not options.timeout > 0:
        raise UsageError("--seeds and --timeout must be positive")
    require_orders(options.orders)
    asked = VerifyOptions(
        rtol=options.rtol,
        atol=options.atol,
        precision=Precision(options.precision),
        arch=options.arch,
        seeds=options.seeds,
        sanitize=options.sanitize,
        orders=options.orders,
        quick=options.quick,
        timeout=options.timeout,
        confine_problem=options.confine_problem,
        preload=import_for_gpu,
    )
    verdict = verify_kernel(options.file, asked, problem=options.problem, on=options.on)
    return report(verdict, as_json=options.json, lines=table(verdict, verbose=options.verbose))


MOST_DRAWS = 3  # that are named without --verbose
_WORDS = {
    CaseOutcome.PASSED: "ok  ",
    CaseOutcome.DECLINED: "----",
    CaseOutcome.NOT_RUN: "----",
    CaseOutcome.NOT_DECIDED: "----",
    CaseOutcome.RECORDED: "----",
    CaseOutcome.NOT_EXECUTED: "----",
}  # what was not executed, or not compared, is not ok


def require_orders(orders: int) -> None:
    """Raise UsageError for a number of orders of completion that is not positive."""
    if orders < 1:
        raise UsageError(f"--orders {orders}: it must be at least 1")


def require_tolerances(rtol: float | None, atol: float | None) -> None:
    """Raise UsageError for a tolerance that is negative or not finite."""
    for name, value in (("--rtol", rtol), ("--atol", atol)):
        if value is not None and not 0 <= value < float("inf"):
            raise UsageError(f"{name} {value:g}: a tolerance is finite and not negative")


def _listed(names: Sequence[str], verbose: bool) -> str:
    """The names, of many the first ones and how many there are."""
    if verbose or len(names) <= MOST_DRAWS:
        return ", ".join(names)
    return f"{', '.join(names[:MOST_DRAWS])} and {len(names) - MOST_DRAWS} more (--verbose)"


def _allowed(error: OutputError) -> str:
    """The stated tolerance, and what was allowed beyond it where an error is larger, with the reason."""
    allowed = f"{error.atol:.2g} + {error.rtol:.2g} of each value" if error.rtol or error.atol else "none"
    allowed += f" + {error.units:g} ulp" if error.units else ""
    if error.excuse is None:
        return allowed
    more = error.excused_allowed
    most = f"{more:.3g}" if isinstance(more, float) and math.isfinite(more) else "any number"
    return f"{allowed}, widened to {most} for an error of {error.excused_error:.3g}: {error.excuse}"


def table(verdict: VerifyVerdict, *, verbose: bool = False) -> Iterator[str]:
    """The verdict as lines for people; `verbose`: with the name of every draw."""
    for case in verdict.cases:
        if case.same_as:
            continue
        remark = f"  {case.rule + ': ' if case.rule else ''}{case.explanation}" if case.explanation else ""
        inputs = f"  [{case.inputs}]" if case.inputs else ""
        yield f"{_WORDS.get(case.outcome, 'FAIL')} {case.name}{inputs}{remark}"
        for error in case.outputs:
            finite = not isinstance(error.worst_actual, str) and not isinstance(error.worst_expected, str)
            yield (
                f"       output {error.output} {error.dtype}{list(error.shape)}: "
                f"max error {'' if finite else 'of finite elements '}{error.max_abs:.3g} absolute, "
                f"{error.max_rel:.3g} relative, {error.max_ulp:.3g} ulp; allowed: {_allowed(error)}"
            )
        if same := [other.name for other in verdict.cases if other.same_as == case.name]:
            yield f"     the same in {len(same)} other case{'s' * (len(same) > 1)}: {'; '.join(same)}"
    for kind in verdict.kinds:
        refused = [f"{name} ({why})" for name, why in kind.left_out.items()]
        told = [_listed(kind.drawn, verbose) or "nothing"]
        told += [f"declined by the kernel: {_listed(kind.declined, verbose)}"] if kind.declined else []
        told += [f"not: {_listed(refused, verbose)}"] if refused else []
        yield f"drawn for `{kind.name}` ({kind.kind}): {'; '.join(told)}"
    yield from unconfined_lines("the kernel", verdict.confinement)
    yield from unconfined_lines("its own problem", verdict.problem_confinement)
    if not verdict.passed:
        yield from log_lines(verdict.log_tail)
    yield f"{verdict.status}: {verdict.conclusion} ({verdict.seconds:.1f} s)"
