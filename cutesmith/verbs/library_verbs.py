"""The verbs on the references and the example index, and their tools: search, find, fetch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cutesmith.examples.index.records import SOURCES
from cutesmith.verbs.definition import Option, Tool, Verb

LIMIT = Option("--limit", type=int, default=5, metavar="N", help="how many (default: 5)")
INDEX = Option("--index", type=Path, metavar="FILE", help="another index than the one that comes along")

# -------------------------------------------------------------------------------------------------------------- search

QUERY = Option("query", nargs="*", help="what to look for")
SECTIONS = replace(LIMIT, metavar=None, help="how many sections (default 5)")
FULL = Option("--full", type=bool, help="print the sections whole")
READ = Option("--read", metavar="PAGE[#ANCHOR]", help="print this section or page instead of searching")
WORDS_TO_SEARCH = replace(
    QUERY,
    nargs=None,
    help="a few words, an API name such as cute.zipped_divide, or an error code such as UNSUP_EARLY_EXIT.",
)

SEARCH_REFERENCES = Tool(
    "search_references",
    """\
Search the CuTe DSL references: API pages of the installed version, patterns, pitfalls, error messages.

Use it before you write an API name that you are not sure of, and for every error code or message. Answers
give the address of a section for read_reference.""",
    options=(WORDS_TO_SEARCH, replace(SECTIONS, least=1, most=10, help="how many sections, at most 10.")),
)
READ_REFERENCE = Tool(
    "read_reference",
    "Read a section of the references, or a page where it is short enough.",
    options=(
        replace(
            READ, argument="address", required=True, help="PAGE.md#section as search_references gives it, or PAGE.md."
        ),
    ),
)

SEARCH = Verb(
    "search",
    options=(
        QUERY,
        SECTIONS,
        FULL,
        READ,
        Option("--without", repeated=True, metavar="PAGE", help="as if it did not exist"),
    ),
    mcp=(
        replace(SEARCH_REFERENCES, options=(WORDS_TO_SEARCH, replace(SECTIONS, least=1, most=20), FULL)),
        replace(READ_REFERENCE, text="Read a section of the references, or a page."),
    ),
    agent=(SEARCH_REFERENCES, READ_REFERENCE),
)

# ---------------------------------------------------------------------------------------------------------------- find

WORDS = Option("words", nargs="*", metavar="WORDS", help="what you want to write")
ARCH = Option("--arch", default="", metavar="SM", help="what it must run on, or be ported to from below")
OPERATION = Option("--op", repeated=True, metavar="NAME", help="any of these operations")
DTYPE = Option("--dtype", repeated=True, metavar="NAME", help="all of these dtypes")
FEATURE = Option("--feature", repeated=True, metavar="NAME", help="all of these features")
WANTED = replace(
    WORDS,
    argument="query",
    nargs=None,
    help='operation, features and dtypes as you would say them, such as "persistent gemm bias gelu bf16".',
)

FIND_EXAMPLE = Tool(
    "find_example",
    """\
Find the working kernels nearest to what you write, each with what agrees and what is missing.

Call it before you write a kernel from nothing: an example that compiles beats memory. fetch_example then
brings one into your folder.""",
    options=(
        WANTED,
        replace(ARCH, help="the architecture that it must run on, such as sm_90a; this session's when empty."),
        replace(LIMIT, least=1, most=10, help="how many, at most 10."),
    ),
)

FIND = Verb(
    "find",
    options=(
        WORDS,
        ARCH,
        OPERATION,
        DTYPE,
        FEATURE,
        Option("--source", repeated=True, metavar="NAME", help=f"{', '.join(SOURCES)}, quack, …"),
        LIMIT,
        INDEX,
    ),
    mcp=(
        replace(
            FIND_EXAMPLE,
            options=(
                WANTED,
                ARCH,
                replace(OPERATION, argument="operation", repeated=False, help="such as gemm"),
                replace(DTYPE, repeated=False, help="such as bf16"),
                replace(FEATURE, repeated=False, help="such as persistent"),
                replace(LIMIT, least=1, most=50),
            ),
        ),
    ),
    agent=(FIND_EXAMPLE,),
)

# --------------------------------------------------------------------------------------------------------------- fetch

IDS = Option("ids", nargs="+", metavar="ID", help="what `cutesmith find` lists")
OUT = Option("--out", type=Path, default=Path("examples"), metavar="DIR", help="default: examples")
SIBLINGS = Option("--with-siblings", type=bool, help="also the examples that it imports")
MIRROR = Option("--mirror", default="", metavar="DIR|URL", help="a checkout of its repository, or another address")
OFFLINE = Option("--offline", type=bool, help="use no network: cache, packages, own kernels")
OUTLINE = Option("--outline", type=bool, help="list functions and classes with their lines and sizes in tokens")
PART = Option("--part", repeated=True, metavar="NAME", help="print this function or class; repeatable")

FETCH = Verb(
    "fetch",
    options=(
        IDS,
        OUT,
        OUTLINE,
        PART,
        Option("--print", type=bool, help="print the text whole"),
        SIBLINGS,
        MIRROR,
        OFFLINE,
        Option("--refresh", type=bool, help="ask the server again, though the cache has it"),
        Option("--overwrite", type=bool, help="replace a file in --out that differs"),
        Option("--any-version", type=bool, help="take an installed package's file whatever its hash"),
        Option("--timeout", type=float, default=10.0, metavar="S", help="seconds of silence (default: 10)"),
        Option("--attempts", type=int, default=4, metavar="N", help="how often it is tried (default: 4)"),
        INDEX,
    ),
    mcp=(
        Tool(
            "fetch_example",
            "Bring examples into a folder, checked by their hash. Read them; they are not run.",
            options=(
                replace(IDS, least=1, most=20, help="ids that find_example gives"),
                replace(OUT, default="examples", help="the folder; relative to the server's working folder"),
                replace(MIRROR, help="a CUTLASS checkout or an address to fetch from"),
                OFFLINE,
                SIBLINGS,
                OUTLINE,
                PART,
            ),
            writes=True,
            network=True,
        ),
    ),
    agent=(
        Tool(
            "fetch_example",
            """\
Bring examples into examples/ of your work folder, checked by their hash; read them with view_file.

A long one costs much to read: ask for its outline first, then for the parts that you need. They are
there to be read: kernel.py may not import them, so take over what you need.""",
            options=(
                replace(
                    IDS,
                    least=1,
                    most=8,
                    help="ids that find_example gives, such as cutesmith/rms_norm_residual; at most 8",
                ),
                OUTLINE,
                replace(PART, most=6, help="the text of these functions or classes, of one example."),
                replace(SIBLINGS, help="also the examples that these import."),
            ),
            writes=True,
        ),
    ),
)
