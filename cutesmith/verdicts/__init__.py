"""The result types of every stage, and nothing else.

A stage never raises for what the candidate did wrong: it returns a verdict whose `exit_code` is one of `ExitCode`.
Verdicts are plain frozen dataclasses of JSON-able fields, so that they cross process borders and land in files as they
are.
"""

from cutesmith.verdicts.base import (
    ExitCode,
    Verdict,
    strict_json,
)
from cutesmith.verdicts.checks import (
    VERIFIED,
    VERIFIED_BY_EMULATION,
    ArchReport,
    BenchmarkVerdict,
    CaseReport,
    CompileVerdict,
    Finding,
    KernelReport,
    LintVerdict,
    OutputError,
    Timing,
    VerifyVerdict,
)
from cutesmith.verdicts.emulation import (
    EmulatedAccess,
    EmulatedAdvice,
    EmulatedFault,
    EmulatedLaunch,
    EmulatedLine,
    EmulatedProfile,
    EmulateVerdict,
    TraceStep,
)
from cutesmith.verdicts.products import (
    AgentLine,
    AgentVerdict,
    ApiVerdict,
    ExecutedBlock,
    FetchedExample,
    FetchVerdict,
    FindVerdict,
    FoundExample,
    GenerateVerdict,
    MatchedLine,
    ReferencesVerdict,
    SearchVerdict,
    SectionFound,
    UnderstoodQuery,
)
from cutesmith.verdicts.violations import CaseOutcome, Mechanism, Rule, Violation

__all__ = [
    "AgentLine",
    "AgentVerdict",
    "ApiVerdict",
    "ArchReport",
    "BenchmarkVerdict",
    "CaseOutcome",
    "CaseReport",
    "CompileVerdict",
    "EmulateVerdict",
    "EmulatedAccess",
    "EmulatedAdvice",
    "EmulatedFault",
    "EmulatedLaunch",
    "EmulatedLine",
    "EmulatedProfile",
    "ExecutedBlock",
    "ExitCode",
    "FetchVerdict",
    "FetchedExample",
    "FindVerdict",
    "Finding",
    "FoundExample",
    "GenerateVerdict",
    "KernelReport",
    "LintVerdict",
    "MatchedLine",
    "Mechanism",
    "OutputError",
    "ReferencesVerdict",
    "Rule",
    "SearchVerdict",
    "SectionFound",
    "Timing",
    "TraceStep",
    "VERIFIED",
    "VERIFIED_BY_EMULATION",
    "UnderstoodQuery",
    "Verdict",
    "VerifyVerdict",
    "Violation",
    "strict_json",
]
