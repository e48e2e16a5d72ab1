"""`cutesmith eval selftest`: the judge against kernels that cheat, and against honest ones that look like them."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from cutesmith.commands._run import command, command_parser
from cutesmith.devices import current_device
from cutesmith.verdicts import ExitCode, strict_json

DESCRIPTION = """\
Put the judge on trial: every kernel of evals/adversarial/ must get the verdict that its header names.

Kernels that cheat must be caught, one or more for each known exploit; honest ones that look like them must pass. What
this machine cannot show (times need a GPU) is listed as such. A known gap is shown as a gap, never as a pass.
Exit code: 0 all as expected, 1 a verdict differs, 2 no kernel has such a name."""

EXAMPLES = (
    "cutesmith eval selftest                        all that this machine can show",
    "cutesmith eval selftest r1 t8                  kernels whose name starts so",
    "cutesmith eval selftest --on gpu --jobs 8 --out DIR",
    "cutesmith eval selftest --out DIR --resume     goes on with an interrupted one",
)


@command
def main(argv: list[str]) -> int:
    """Run the command; returns its exit code."""
    from cutesmith.evals.selftest import matrix
    from cutesmith.evals.selftest.specimens import Specimen, adversarial_folder, specimens
    from cutesmith.evals.selftest.trial import Outcome, keep, kept, run_all

    options = _options(argv)
    on = options.on or ("emulator" if current_device() is None else "gpu")
    chosen = specimens(options.kernels or adversarial_folder(), options.names)
    left_out = [specimen for specimen in chosen if not specimen.can_run(on)]

    def known(specimen: Specimen) -> Outcome | None:
        return kept(options.out, specimen, on) if options.resume else None

    def done(outcome: Outcome) -> None:
        print(f"{outcome.result:6} {outcome.specimen.name}: {outcome.status} {outcome.rule}", file=sys.stderr)
        if options.out:
            keep(options.out, outcome, on)

    outcomes = run_all(chosen, on, jobs=options.jobs, known=known, done=done)
    counts = matrix.counts(outcomes)
    summary = (
        f"{counts['right']} of {counts['kernels']} as expected on {on}, {counts['honest_passed']} of "
        f"{counts['honest']} honest ones passed, {counts['rows_caught']} of {counts['rows']} exploits caught"
    )
    summary += f", {counts['gaps']} known gaps" if counts["gaps"] else ""
    if options.out:
        matrix.write(options.out, outcomes, left_out, f"# The judge on trial\n\n{summary}.")
    if options.json:
        print(
            strict_json(
                {"stage": "selftest", "summary": summary, "counts": counts, "kernels": [o.row() for o in outcomes]}
            )
        )
    else:
        print(f"{matrix.markdown(outcomes, left_out)}\n\n{summary}")
        for outcome in (each for each in outcomes if each.result in ("WRONG", "closed")):  # the end of a log is kept
            row = outcome.row()
            print(f"not as expected: {row['kernel']}: {row['got']}, expected {row['expected']}: {row['sentence']}")
    return int(ExitCode.WRONG_RESULT if counts["wrong"] else ExitCode.PASSED)


def _options(argv: list[str]) -> Namespace:
    parser = command_parser("eval selftest", DESCRIPTION, examples=EXAMPLES)
    parser.add_argument("names", nargs="*", help="prefixes of kernel names (default: all)")
    parser.add_argument("--on", choices=("gpu", "emulator", "compile"), help="default: gpu, or emulator without one")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once (default: 2)")
    parser.add_argument("--out", type=Path, help="folder for matrix.md, matrix.json and the verdicts")
    parser.add_argument("--kernels", type=Path, help="another folder of kernels (default: evals/adversarial)")
    parser.add_argument("--resume", action="store_true", help="take from --out what it holds of unchanged kernels")
    options = parser.parse_args(argv)
    if options.resume and options.out is None:
        parser.error("--resume needs --out, the folder of the trial that goes on")
    return options
