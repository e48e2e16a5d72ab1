"""`generate`: its options without a model, and its MCP tool."""

from __future__ import annotations

from dataclasses import replace

from cutesmith.verbs.definition import Option, Tool, Verb, positive
from cutesmith.verbs.kernel_verbs import MCP_ARCH, MCP_ON, ON, PRECISION

AGENTS = "draft: patterns, no model; claude; openai:MODEL; auto: claude when a key is present; script:FILE; replay:DIR"
MOST_TRIED = 8  # configurations of a pattern
MOST_TRIED_IN_DRAFT = 4  # of the draft that a session with a model begins with

PROBLEM = Option("problem", nargs="?", metavar="REQUEST|PROBLEM", help="problem file, file.py:name, or a sentence")
ARCH = Option("--arch", help="architecture, such as sm_90a (default: this GPU's; without one sm_90a)")
OUT = Option("--out", metavar="DIR", help="folder for the results (default: cutesmith-out/NAME)")
CONFIGURATIONS = Option(
    "--configurations",
    type=positive,
    metavar="N",
    help=f"how many to try (default: {MOST_TRIED}; for the draft of a session with a model {MOST_TRIED_IN_DRAFT})",
)

GENERATE = Verb(
    "generate",
    options=(
        PROBLEM,
        Option("--agent", default="draft", metavar="WHO", help=f"{AGENTS} (default: draft)"),
        Option("--input", repeated=True, metavar="SPEC", help="an input of file.py:function"),
        ARCH,
        OUT,
        replace(ON, help="execute on the GPU or the emulated one, or compile only"),
        CONFIGURATIONS,
        PRECISION,
        Option("--no-benchmark", type=bool, help="skip the comparison with eager and torch.compile"),
        Option("--no-cache", type=bool, help="time the configurations again"),
        Option("--confine-problem", type=bool, help="trust the problem no more than its kernel"),
        Option("--quiet", type=bool, help="say nothing on the way"),
    ),
    mcp=(
        Tool(
            "generate_kernel",
            "Write a kernel for a problem file by patterns (pointwise, row reductions), taken through all the stages.",
            options=(
                replace(PROBLEM, nargs=None, help="the problem file; relative to the server's working folder"),
                replace(OUT, help="folder for the results; empty: cutesmith-out/NAME"),
                MCP_ARCH,
                MCP_ON,
                replace(CONFIGURATIONS, type=int, default=MOST_TRIED, help="how many configurations are tried"),
            ),
            writes=True,
        ),
    ),
)
