"""`cutesmith lint FILE`: what is wrong with a kernel file, found without running it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from cutesmith.commands._run import command, report, verb_parser
from cutesmith.errors import UsageError
from cutesmith.lint import RULES, Rule, lint_file
from cutesmith.verbs.kernel_verbs import LINT
from cutesmith.verdicts import LintVerdict, strict_json

DESCRIPTION = """\
Check a CuTe DSL kernel file without importing it: every cute.* and cutlass.* name, keyword and deprecation against the
installed DSL, the DSL's traps, and the contract (kernel_fn, reference_fn, get_inputs).

Exit code 0: no error (warnings and notes may be there); 3: an error; 2: no readable Python file (missing, binary, too
large, a syntax error). A comment `# cutesmith: ignore[CS301]` suppresses those rules on its line, `# cutesmith: ignore`
every rule there."""

EXAMPLES = (
    "cutesmith lint kernel.py",
    "cutesmith lint kernel.py --json",
    "cutesmith lint --rules                 # every rule: id, severity, title, why, fix",
    "cutesmith lint --rules CS301 CS302     # these rules, with a bad and a good example",
)
WIDTH = 118


@command
def main(argv: list[str]) -> int:
    """Run the command; returns its exit code."""
    options = verb_parser(LINT, DESCRIPTION, examples=EXAMPLES).parse_args(argv)
    if options.rules is not None:
        ids = options.rules + ([options.file] if options.file else [])
        if unknown := [name for name in ids if name.upper() not in RULES]:
            raise UsageError(f"There is no rule {', '.join(unknown)}.", hint="cutesmith lint --rules lists them.")
        rules = [RULES[name.upper()] for name in ids] or list(RULES.values())
        lines = _rule_lines(rules, examples=bool(ids))
        print(strict_json({"rules": rules}) if options.json else "\n".join(lines))
        return 0
    if options.file is None:
        raise UsageError(
            "cutesmith lint: no file was given.", hint="cutesmith lint kernel.py, or cutesmith lint --rules"
        )
    verdict = lint_file(options.file, problem=bool(options.problem))
    return report(verdict, as_json=options.json, lines=table(verdict))


def table(verdict: LintVerdict) -> Iterator[str]:
    """The verdict as lines for people."""
    for found in verdict.findings:
        yield f"{verdict.path}:{found.line}:{found.column}: {found.severity} {found.rule}: {found.message}"
        if found.fix:
            yield from _wrapped("fix", found.fix)
    yield verdict.summary if verdict.exit_code == 2 else f"{verdict.path}: {verdict.summary}"


def _wrapped(label: str, text: str) -> list[str]:
    return textwrap.wrap(f"{label}: {text}", WIDTH, initial_indent="    ", subsequent_indent="         ")


def _rule_lines(rules: list[Rule], *, examples: bool) -> Iterator[str]:
    for rule in rules:
        yield f"{rule.id}  {rule.severity:<8} {rule.title}"
        yield from (*_wrapped("why", rule.why), *_wrapped("fix", rule.fix))
        for label, code in (("bad", rule.bad), ("good", rule.good)) if examples else ():
            yield f"    {label}:"
            yield textwrap.indent(textwrap.dedent(code).strip("\n"), "        ")
