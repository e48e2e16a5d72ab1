"""`cutesmith remote HOST VERB …`: a stage of the judge on a machine with a GPU, over ssh; `--serve` is its far side."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cutesmith.agent.texts.verdict_texts import describe
from cutesmith.commands._run import command, command_parser
from cutesmith.remote_judge import VERBS, RemoteHost, run_remotely, serve
from cutesmith.unicode import plain_text
from cutesmith.verdicts import strict_json

DESCRIPTION = f"""\
Run a stage on another machine, which has a GPU and cutesmith, by the system's ssh client. Files that the words name
travel there; the verdict comes back with this machine's paths, and so does its exit code.

HOST is what ssh knows (a key, no password); HOST:/path/to/cutesmith where the program is not on the PATH there.
Verbs: {", ".join(VERBS)}."""

EXAMPLES = (
    "cutesmith remote gpu-box verify kernel.py",
    "cutesmith remote me@gpu-box:/opt/venv/bin/cutesmith benchmark kernel.py --problem problem.py --json",
)


@command
def main(argv: list[str]) -> int:
    """Run the command; returns the exit code of the verb there."""
    parser = command_parser("remote", DESCRIPTION, examples=EXAMPLES)
    parser.add_argument("--serve", action="store_true", help="answer one request on stdin: what ssh starts there")
    parser.add_argument("host", nargs="?", metavar="HOST")
    parser.add_argument("verb", nargs="?", metavar="VERB")
    options, words = parser.parse_known_args(argv)
    if options.serve:
        print(strict_json(asyncio.run(serve())))
        return 0
    if not options.host or not options.verb:
        parser.error("give a host and a verb")
    files = [Path(word.partition("=")[2] if word.startswith("--") else word) for word in words]
    sent = list(dict.fromkeys(path for path in files if path.is_file()))
    if not sent:
        parser.error("the words name no file that is here")
    verdict = asyncio.run(run_remotely(RemoteHost.of(options.host), options.verb, *words, files=sent))
    if options.json:
        print(strict_json(verdict))
    elif verdict.get("stage") == "error":
        print(plain_text(f"{verdict['summary']}\n{verdict.get('hint', '')}".strip()))
    elif "stages" in verdict:
        print(plain_text("\n".join(describe(stage) for stage in verdict["stages"])))
    else:
        print(plain_text(describe(verdict)))
    return int(verdict["exit_code"])
