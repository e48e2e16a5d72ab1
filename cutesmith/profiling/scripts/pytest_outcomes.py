"""A pytest plugin that notes what came of each test on the emulated GPU, by the class of what it raised."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cutesmith.emulator.device import EmulatedDevice
from cutesmith.errors import CutesmithError
from cutesmith.profiling.requests import RunError
from cutesmith.verdicts import ExitCode, ScriptTest

_WORDS = {ExitCode.WRONG_RESULT: "failed", ExitCode.UNAVAILABLE: "not executed"}
_NOT_THE_TESTS_WISH = (ExitCode.UNAVAILABLE, ExitCode.INTERNAL)  # what a test cannot have meant to see raised


class Outcomes:
    """The outcome of every test; a launch that failed does not poison the tests after it, as it would on a GPU."""

    def __init__(self, device: EmulatedDevice, ending: Callable[[BaseException], RunError | None]) -> None:
        self.tests: list[ScriptTest] = []
        self._device, self._ending = device, ending
        self._current = ""
        self._owners: list[str] = []  # of each launch

    def owner(self, launch: int) -> str:
        """The node id of the test that made the launch."""
        self._attribute()
        return self._owners[launch]

    def _attribute(self) -> None:
        missing = len(self._device.launches) - len(self._owners)
        self._owners += [self._current] * missing

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Around a test with its fixtures."""
        self._attribute()
        self._current, self._begin, before = item.nodeid, time.monotonic(), len(self._device.launches)
        self._error: RunError | None = None
        self._skipped, self._passed = "", False
        self._device.forget_failure()
        yield
        self._attribute()
        self._current = ""
        outcome = "skipped" if self._skipped else "passed" if self._passed else "crashed"
        self.tests.append(
            ScriptTest(
                name=item.nodeid,
                outcome=_WORDS.get(self._error.exit_code, "crashed") if self._error else outcome,
                exit_code=self._error.exit_code if self._error else ExitCode.PASSED,
                reason=self._error.message if self._error else self._skipped,
                launches=len(self._device.launches) - before,
                seconds=round(time.monotonic() - self._begin, 3),
            )
        )

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[None]:
        """A phase of a test: its setup, its call, its teardown."""
        result: Any = yield
        report = result.get_result()
        if report.failed:
            error = call.excinfo.value if call.excinfo else None
            told = self._ending(error) if error is not None else None
            self._error = self._error or told or RunError(ExitCode.CRASHED, str(report.longrepr)[-2000:], "", "")
        elif report.skipped:
            why = report.longrepr[2] if isinstance(report.longrepr, tuple) else getattr(report, "wasxfail", "")
            self._skipped = str(why) or "skipped"
        elif report.when == "call":
            self._passed = True
            self._error = self._error or self._swallowed()

    def _swallowed(self) -> RunError | None:
        """What the test has caught, or expected, though it says nothing about its kernel."""
        try:
            self._device.check()
        except CutesmithError as error:
            if error.exit_code in _NOT_THE_TESTS_WISH:
                return self._ending(error)
        return None

    def pytest_exception_interact(self, node: Any, call: Any, report: Any) -> None:
        """A file that could not be collected."""
        if isinstance(report, pytest.CollectReport) and call.excinfo is not None:
            error = call.excinfo.value
            told = self._ending(error.__cause__ or error)
            if told is not None:
                word = _WORDS.get(told.exit_code, "crashed")
                self.tests.append(
                    ScriptTest(f"{Path(node.nodeid).name} (its import)", word, told.exit_code, told.message)
                )


def run_pytest(words: list[str], outcomes: Outcomes) -> RunError | None:
    """Run pytest; the error is None where its tests tell everything."""
    code = int(pytest.main(["-p", "no:cacheprovider", *words], plugins=[outcomes]))
    if outcomes.tests:
        return None
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        return RunError(ExitCode.USAGE, "pytest collected no test", "Check the paths and -k.", "")
    kinds = {pytest.ExitCode.USAGE_ERROR: ExitCode.USAGE}
    return RunError(kinds.get(pytest.ExitCode(code), ExitCode.CRASHED), f"pytest ended with exit code {code}", "", "")
