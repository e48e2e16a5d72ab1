"""The verbs that keep what is known of a kernel file and of this machine: checkpoint, note, doctor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cutesmith.verbs.definition import Option, Tool, Verb
from cutesmith.verbs.kernel_verbs import FILE, MCP_PATH, VERSION_NOTE

# ------------------------------------------------------------------------------------------------- checkpoint and note

VERDICT = Option("--verdict", metavar="JSON", help="file with a verdict's JSON to keep with it, - for stdin")
VERSIONS = Option("versions", nargs="*", metavar="CHECKPOINT", help="number or first characters of the hash")
ACTION = Option("action", choices=("backup", "list", "diff", "revert"))

CHECKPOINT = Verb(
    "checkpoint",
    options=(ACTION, FILE, VERSIONS, VERSION_NOTE, VERDICT),
    mcp=(
        Tool(
            "checkpoint_kernel",
            "Keep, list, compare or put back versions of a kernel file; nothing is ever lost.",
            options=(
                replace(ACTION, help="what to do"),
                MCP_PATH,
                replace(VERSIONS, most=2, help="numbers or hashes that `list` gives"),
                VERSION_NOTE,
            ),
            writes=True,
        ),
    ),
)

PREDICTION = Option("--prediction", default="", help="what you expect, with the reason")
CHANGE = Option("--change", default="", help="what is different from the version before")
MEASUREMENT = Option("--measurement", default="", help="what was measured, on which machine")
REMARK = Option("--note", default="", help="anything else: a lesson, an architecture that is not here")

NOTE = Verb(
    "note",
    options=(
        replace(FILE, type=Path),
        PREDICTION,
        CHANGE,
        MEASUREMENT,
        replace(VERDICT, default="", help="file with a verdict's JSON, - for stdin"),
        REMARK,
    ),
    mcp=(
        Tool(
            "note_design",
            "Append a prediction, a change or a measurement to DEVLOG.md beside the kernel file.",
            options=(MCP_PATH, PREDICTION, CHANGE, MEASUREMENT, REMARK),
            writes=True,
        ),
    ),
)

# -------------------------------------------------------------------------------------------------------------- doctor

DOCTOR = Verb(
    "doctor",
    options=(Option("--table", type=bool, help="show the SM versions and their limits too"),),
    mcp=(Tool("doctor", "Say what this machine has and lacks: GPU, driver, packages, emulator."),),
)
