"""The result types of every stage, and nothing else.

A stage never raises for what the candidate did wrong: it returns a verdict whose `exit_code` is one of `ExitCode`.
Verdicts are plain frozen dataclasses of JSON-able fields, so that they cross process borders and land in files as they
are.
"""

from cutesmith.verdicts.base import ExitCode as ExitCode
from cutesmith.verdicts.base import Verdict as Verdict
from cutesmith.verdicts.base import strict_json as strict_json
from cutesmith.verdicts.checks import VERIFIED as VERIFIED
from cutesmith.verdicts.checks import VERIFIED_BY_EMULATION as VERIFIED_BY_EMULATION
from cutesmith.verdicts.checks import BenchmarkVerdict as BenchmarkVerdict
from cutesmith.verdicts.checks import CaseReport as CaseReport
from cutesmith.verdicts.checks import CheckVerdict as CheckVerdict
from cutesmith.verdicts.checks import Finding as Finding
from cutesmith.verdicts.checks import InputKind as InputKind
from cutesmith.verdicts.checks import LintVerdict as LintVerdict
from cutesmith.verdicts.checks import OutputError as OutputError
from cutesmith.verdicts.checks import Precision as Precision
from cutesmith.verdicts.checks import Timing as Timing
from cutesmith.verdicts.checks import VerifyVerdict as VerifyVerdict
from cutesmith.verdicts.checks import deciding as deciding
from cutesmith.verdicts.checks import failed as failed
from cutesmith.verdicts.compiled import ArchReport as ArchReport
from cutesmith.verdicts.compiled import CompileVerdict as CompileVerdict
from cutesmith.verdicts.compiled import EngineFault as EngineFault
from cutesmith.verdicts.compiled import EngineFinding as EngineFinding
from cutesmith.verdicts.compiled import EngineReport as EngineReport
from cutesmith.verdicts.compiled import GlobalAccess as GlobalAccess
from cutesmith.verdicts.compiled import InnerLoop as InnerLoop
from cutesmith.verdicts.compiled import KernelReport as KernelReport
from cutesmith.verdicts.compiled import Touched as Touched
from cutesmith.verdicts.emulation import EmulatedAccess as EmulatedAccess
from cutesmith.verdicts.emulation import EmulatedAdvice as EmulatedAdvice
from cutesmith.verdicts.emulation import EmulatedFault as EmulatedFault
from cutesmith.verdicts.emulation import EmulatedLaunch as EmulatedLaunch
from cutesmith.verdicts.emulation import EmulatedLine as EmulatedLine
from cutesmith.verdicts.emulation import EmulatedProfile as EmulatedProfile
from cutesmith.verdicts.emulation import EmulateVerdict as EmulateVerdict
from cutesmith.verdicts.emulation import MbarrierRing as MbarrierRing
from cutesmith.verdicts.emulation import Prediction as Prediction
from cutesmith.verdicts.emulation import ScriptFault as ScriptFault
from cutesmith.verdicts.emulation import ScriptKernel as ScriptKernel
from cutesmith.verdicts.emulation import ScriptTest as ScriptTest
from cutesmith.verdicts.emulation import ScriptVerdict as ScriptVerdict
from cutesmith.verdicts.emulation import TraceStep as TraceStep
from cutesmith.verdicts.products import AgentLine as AgentLine
from cutesmith.verdicts.products import AgentVerdict as AgentVerdict
from cutesmith.verdicts.products import ApiVerdict as ApiVerdict
from cutesmith.verdicts.products import ExamplePart as ExamplePart
from cutesmith.verdicts.products import ExecutedBlock as ExecutedBlock
from cutesmith.verdicts.products import FetchedExample as FetchedExample
from cutesmith.verdicts.products import FetchVerdict as FetchVerdict
from cutesmith.verdicts.products import FindVerdict as FindVerdict
from cutesmith.verdicts.products import FoundExample as FoundExample
from cutesmith.verdicts.products import GenerateVerdict as GenerateVerdict
from cutesmith.verdicts.products import MatchedLine as MatchedLine
from cutesmith.verdicts.products import ReferencesVerdict as ReferencesVerdict
from cutesmith.verdicts.products import SearchVerdict as SearchVerdict
from cutesmith.verdicts.products import SectionFound as SectionFound
from cutesmith.verdicts.products import UnderstoodQuery as UnderstoodQuery
from cutesmith.verdicts.violations import CaseOutcome as CaseOutcome
from cutesmith.verdicts.violations import Excuse as Excuse
from cutesmith.verdicts.violations import FaultKind as FaultKind
from cutesmith.verdicts.violations import Mechanism as Mechanism
from cutesmith.verdicts.violations import Rule as Rule
from cutesmith.verdicts.violations import Violation as Violation
