"""The verbs that judge a kernel file and their tools: lint, compile, verify, benchmark and others.

A tool of an agent's session always acts on that session's kernel.py and problem, so it takes fewer arguments.
"""

from __future__ import annotations

from dataclasses import replace

from cutesmith.compiling.compilation import DEFAULT_TIMEOUT
from cutesmith.devices import DEFAULT_ARCHS
from cutesmith.profiling.predictions import PRODUCTS
from cutesmith.timing.contest import QUICK_ROUNDS, ROUNDS
from cutesmith.verbs.definition import Option, Tool, Verb
from cutesmith.verdicts import Precision

PLACES = ("auto", "gpu", "emulator", "compile")

FILE = Option("file", help="the kernel file")
PROBLEM = Option("--problem", metavar="FILE", help="take reference_fn and get_inputs from this file instead")
CONFINE_PROBLEM = Option("--confine-problem", type=bool, help="trust that file no more than the kernel")
ON = Option("--on", choices=PLACES, default="auto", help="where (default: %(default)s)")
ARCH = Option("--arch", metavar="SM", help="architecture (default: the GPU's; sm_90a without one)")
TIMEOUT = Option("--timeout", type=float, metavar="S", default=300.0, help="seconds (default: %(default)g)")
TIME_COUNTED = "CPU time of all its processes; where they sleep, and on a GPU, wall-clock time"

MCP_PATH = replace(FILE, argument="path", help="path of the kernel file; relative to the server's working folder")
MCP_PROBLEM = replace(PROBLEM, help="file with reference_fn and get_inputs, when the kernel file has none")
MCP_ON = replace(ON, help="where it runs; auto: on the GPU, without one on the emulated GPU")
MCP_ARCH = replace(ARCH, help="architecture such as sm_90a; empty: this machine's GPU, else sm_90a")

# ---------------------------------------------------------------------------------------------------- lint and compile

LINT = Verb(
    "lint",
    options=(
        replace(FILE, nargs="?"),
        Option("--rules", nargs="*", metavar="ID", help="list the rules (all, or these) instead of checking a file"),
        replace(ARCH, help="taken as by the other commands; the rules are the same for every architecture"),
        replace(PROBLEM, help="a file that has reference_fn and get_inputs, which are not missed then"),
    ),
    mcp=(
        Tool(
            "lint_kernel",
            "Check a kernel file without running it: API names against the installed DSL, traps, the contract.",
            options=(MCP_PATH,),
        ),
    ),
    agent=(
        Tool(
            "lint_kernel",
            """\
Check kernel.py without running it: API names against the installed DSL, the DSL's traps, the contract.

Takes a fraction of a second: call it after every edit. Findings name the line and the fix; errors stop
verify_kernel too.""",
        ),
    ),
)

COMPILE_ARCH = Option(
    "--arch",
    repeated=True,
    metavar="SM",
    help=f"architecture, repeated or comma-separated (default: {','.join(DEFAULT_ARCHS)})",
)

COMPILE = Verb(
    "compile",
    options=(
        FILE,
        COMPILE_ARCH,
        replace(PROBLEM, help="take get_inputs from this file instead"),
        Option(
            "--keep",
            metavar="DIR",
            help="write PTX, cubins and, where nvdisasm is installed, machine code as text there",
        ),
        replace(
            TIMEOUT, default=DEFAULT_TIMEOUT, help=f"seconds an architecture: {TIME_COUNTED} (default: %(default)g)"
        ),
    ),
    mcp=(
        Tool(
            "compile_kernel",
            "Compile with no GPU for each architecture: registers, spills, shared memory, occupancy, refused launches.",
            options=(MCP_PATH, replace(COMPILE_ARCH, argument="archs", help="such as sm_90a"), MCP_PROBLEM),
        ),
    ),
    agent=(
        Tool(
            "compile_kernel",
            """\
Compile kernel.py for this session's architecture without running it; takes seconds.

Says registers, spills, shared memory, occupancy and what limits it, the widest global accesses, tensor-core
and TMA instructions, and what the hardware would refuse; or the DSL's error with its line. Call it once lint
passes, and after a change of tiling, stages or layouts to see what it costs.""",
        ),
    ),
)

# ------------------------------------------------------------------------------------------------ verify and benchmark

RTOL = Option("--rtol", type=float, metavar="R", help="relative tolerance (default: the file's, or by dtype)")
ATOL = Option("--atol", type=float, metavar="A", help="absolute, scaled down for small references")
PRECISION = Option(
    "--precision",
    choices=tuple(Precision),
    default=str(Precision.PYTORCH),
    help="what factors of float32 products may round to, and results are judged by (default: pytorch, tf32 only where "
    "PyTorch's own flags allow it: in convolutions by default)",
)
VERSION_NOTE = Option("--note", default="", help="one line that says what this version is, kept with its checkpoint")
SANITIZE = Option("--sanitize", type=bool, help="also run compute-sanitizer memcheck and racecheck")

ORDERS = Option(
    "--orders",
    type=int,
    default=1,
    metavar="N",
    help="on the emulated GPU, run launches with TMA or mbarriers in N orders of completions and warps (default: 1)",
)

VERIFY = Verb(
    "verify",
    options=(
        FILE,
        PROBLEM,
        CONFINE_PROBLEM,
        ON,
        RTOL,
        ATOL,
        PRECISION,
        ARCH,
        Option("--seeds", type=int, default=2, metavar="N", help="draws of each input set (default: 2)"),
        Option("--quick", type=bool, help="few derived values; the status says so"),
        SANITIZE,
        ORDERS,
        replace(TIMEOUT, default=120.0, help=f"seconds a call: {TIME_COUNTED} (default: 120)"),
        Option("--verbose", type=bool, help="name every draw of every input (--json always does)"),
    ),
    mcp=(
        Tool(
            "verify_kernel",
            "Compare kernel_fn with a float64 reference on many inputs, confined; with no GPU on the emulated one.",
            options=(MCP_PATH, MCP_PROBLEM, MCP_ON, MCP_ARCH, RTOL, ATOL, SANITIZE),
        ),
    ),
    agent=(
        Tool(
            "verify_kernel",
            """\
Let the judge decide whether kernel_fn of kernel.py computes what the problem's reference_fn computes.

It draws secret inputs (several sets, odd shapes, zeros, equal values, offsets, NaN and Inf, other masks,
integers and scalars, and inputs without the structure of get_inputs) and compares with a float64 reference;
failing cases come with their inputs and the worst element. A pass is kept as a checkpoint by itself, timed
where there is a GPU, and becomes the result if it is the best so far. Lint runs first. Takes
seconds to minutes: call it once compile_kernel passes.""",
            own=(VERSION_NOTE,),
            options=(
                replace(
                    SANITIZE,
                    help="after a pass on a GPU also run memcheck and racecheck of compute-sanitizer where it is "
                    "installed.",
                ),
            ),
        ),
    ),
)

BENCHMARK = Verb(
    "benchmark",
    options=(
        FILE,
        PROBLEM,
        CONFINE_PROBLEM,
        Option("--baseline", repeated=True, metavar="FILE:FN", help="also time this function"),
        Option("--no-compile-baseline", type=bool, help="leave torch.compile out"),
        Option("--quick", type=bool, help=f"{QUICK_ROUNDS} rounds instead of {ROUNDS}"),
        Option("--rounds", type=int, metavar="N", help="interleaved rounds"),
        replace(ARCH, help="architecture (default: the GPU's)"),
        replace(TIMEOUT, help="seconds a call (default: 300)"),
        Option("--plot", metavar="PNG|SVG", help="draw the samples"),
    ),
    mcp=(
        Tool(
            "benchmark_kernel",
            "Time a kernel beside eager PyTorch and torch.compile, cold L2, against the measured floor. Needs a GPU.",
            options=(MCP_PATH, MCP_PROBLEM, MCP_ARCH),
        ),
    ),
    agent=(
        Tool(
            "benchmark_kernel",
            """\
Time kernel.py beside eager PyTorch and torch.compile, with a cold L2, against the roofline's floor.

Needs a GPU, and about a minute. verify_kernel times every version that passes already: use this for the full
comparison of a version that you may finish with. Outputs of timed launches are checked.""",
        ),
    ),
)

# ---------------------------------------------------------------------------------------------------------- all at once

QUICK = Option("--quick", type=bool, help="few derived values, few rounds, no torch.compile; the status says so")

CHECK = Verb(
    "check",
    options=(
        FILE,
        PROBLEM,
        CONFINE_PROBLEM,
        ON,
        RTOL,
        ATOL,
        ARCH,
        QUICK,
        VERSION_NOTE,
        Option("--no-backup", type=bool, help="keep no checkpoint of what passed"),
        replace(TIMEOUT, default=120.0, help=f"seconds a call: {TIME_COUNTED} (default: 120)"),
    ),
    mcp=(
        Tool(
            "check_kernel",
            "Lint, compile, verify, benchmark and keep a kernel file in one call; the first stage that fails ends it.",
            options=(MCP_PATH, MCP_PROBLEM, MCP_ON, MCP_ARCH, QUICK, VERSION_NOTE),
            writes=True,
        ),
    ),
    agent=(
        Tool(
            "check_kernel",
            """\
Take kernel.py through lint, compile, verify and, on a GPU, benchmark; the first that fails ends it, with its details.

The usual call after an edit: one answer instead of four. A pass is kept as a checkpoint by itself, and becomes
the result if it is the best so far. Takes seconds to minutes. The single stages have tools of their own.""",
            own=(VERSION_NOTE,),
        ),
    ),
)

# ------------------------------------------------------------------------------------------------- emulate and profile

COUNTED = Option("--profile", type=bool, help="what each Python line costs, and what to change")
TRACE = Option("--trace", nargs="?", const="0:0", metavar="BLOCK:WARP", help="print one warp (default: 0:0)")
LANE = Option("--lane", type=int, default=0, metavar="N", help="the lane whose values are shown (default: 0)")
LAUNCH = Option("--launch", type=int, default=0, metavar="N", help="the launch that is traced (default: 0)")
STEPS = Option("--steps", type=int, default=2000, metavar="N", help="instructions of a trace (default: 2000)")

SCRIPT = Option(
    "--script",
    nargs="...",
    help="run this Python script, or -m MODULE, with all words after it; options of emulate come before",
)
READ = Option("--read", repeated=True, metavar="PATH", help="a further file or folder that the script may read")
ENVIRONMENT = Option("--env", repeated=True, metavar="NAME=VALUE", help="a variable of the script's environment")

CARD = Option("--gpu", choices=PRODUCTS, help="predict for this GPU alone (default: each whose rates are known)")

EMULATE = Verb(
    "emulate",
    options=(
        replace(FILE, nargs="?"),
        SCRIPT,
        READ,
        ENVIRONMENT,
        PROBLEM,
        COUNTED,
        TRACE,
        LANE,
        LAUNCH,
        STEPS,
        replace(ARCH, help="architecture (default: sm_90a)"),
        CARD,
        Option("--full", type=bool, help="run the inputs as they are, however large"),
        Option("--seed", type=int, default=0, metavar="N", help="seed of torch for get_inputs() (default: 0)"),
        ORDERS,
        TIMEOUT,
    ),
    mcp=(
        Tool(
            "emulate_kernel",
            "Run one call on the emulated GPU: races, missing waits, bounds, by line; a profile; a warp's trace.",
            options=(MCP_PATH, MCP_PROBLEM, MCP_ARCH, COUNTED, replace(TRACE, help="BLOCK:WARP, such as 0:0")),
        ),
        Tool(
            "emulate_script",
            "Run a Python script, or pytest, unmodified on the emulated GPU, confined: findings of all its launches.",
            options=(
                replace(
                    SCRIPT, required=True, least=1, help='the words after `python`, such as ["-m", "pytest", "t.py"]'
                ),
                replace(MCP_ARCH, help="architecture such as sm_90a; empty: sm_90a"),
                replace(READ, help="further files or folders that it may read"),
                replace(ENVIRONMENT, help="variables of its environment, NAME=VALUE"),
                replace(TIMEOUT, least=1),
            ),
        ),
    ),
    agent=(
        Tool(
            "emulate_kernel",
            """\
Run kernel.py once on the emulated GPU: races, missing waits, accesses out of bounds, by Python line; printf.

For finding out why; it compares nothing with the reference, that is verify_kernel. It needs no GPU. Inputs
are those of get_inputs() with fewer rows.""",
            options=(
                replace(COUNTED, help="also count instructions, sectors and bank conflicts by line."),
                replace(
                    TRACE,
                    help="WARP or BLOCK:WARP, such as 0:0: every instruction of that warp and what it set in one lane.",
                ),
                replace(LANE, help="whose values a trace shows, 0 to 31."),
                replace(LAUNCH, help="which launch is traced, from 0."),
                replace(STEPS, default=120, least=1, most=400, help="the most instructions of a trace, at most 400."),
            ),
        ),
        Tool(
            "emulate_script",
            """\
Run a Python script of your folder, or pytest on it, on the emulated GPU: prints, failed assertions, races, bounds.

For an experiment beside kernel.py: an instruction, a layout, a part of the kernel against PyTorch. Tensors on "cuda"
work. It is confined, has no network and starts no processes; it judges nothing.""",
            options=(
                replace(SCRIPT, required=True, least=1, help='the words after `python`, such as ["try_swizzle.py"].'),
                replace(TIMEOUT, default=60.0, least=1, most=300, help="seconds, at most 300 (default: 60)."),
            ),
        ),
    ),
)

PROFILE_ON = replace(ON, choices=("auto", "gpu", "emulator"), help="where (default: auto)")

PROFILE = Verb(
    "profile",
    options=(
        FILE,
        PROBLEM,
        CONFINE_PROBLEM,
        PROFILE_ON,
        replace(ARCH, help="architecture (default: the GPU's, else sm_90a)"),
        CARD,
        Option("--ncu", metavar="PATH", help="the ncu to use (default: that on PATH)"),
        Option("--report", metavar="FILE", help="keep ncu's report (.ncu-rep) for its own viewer"),
        Option("--full", type=bool, help="on the emulated GPU: all inputs, however large"),
        TIMEOUT,
    ),
    mcp=(
        Tool(
            "profile_kernel",
            "Say where the time goes and what to change, with metric and reference: ncu on a GPU, else counts by line.",
            options=(MCP_PATH, MCP_PROBLEM, replace(PROFILE_ON, help="auto: ncu where it can run"), MCP_ARCH),
        ),
    ),
    agent=(
        Tool(
            "profile_kernel",
            """\
Say by Python line where kernel.py spends its work: what to change before the next experiment.

On a GPU with Nsight Compute its metrics; elsewhere a static profile of the emulated GPU: instructions, sectors
of global requests against the ideal, bank conflicts, the busiest pipe. Call it when a prediction and a
measurement differ, and before you optimise.""",
        ),
    ),
)
