"""The pytest plugin: `.cvm` files among a project's tests are collected, an item for each `// test`
line.

pytest loads it in every run, whether there are such files or not, so it imports nothing heavy
before it meets one.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from cvm.dialect.support.diagnostics import printable

from .filetest import SUFFIXES, Command, Failure, Filetest, bless, coloured

BLESSED = "cvm-blessed"  # the user property of an item that has changed its file: the diff


def pytest_addoption(parser: pytest.Parser) -> None:
    text = (
        "write what .cvm tests print into their golden lines, and show the diff (also: CVM_BLESS=1)"
    )
    parser.getgroup("cvm").addoption("--cvm-bless", action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    config.option.cvm_bless = config.getoption("--cvm-bless") or os.environ.get("CVM_BLESS") == "1"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix not in SUFFIXES:
        return None
    test = Filetest.load(file_path)
    return File.from_parent(parent, path=file_path, test=test) if test.is_test() else None


class File(pytest.File):
    """A file with expectations."""

    def __init__(self, *, test: Filetest, **given: Any) -> None:
        super().__init__(**given)
        self.test = test

    def collect(self) -> Iterable[pytest.Item]:
        for command in dict.fromkeys(self.test.commands):
            yield Item.from_parent(self, name=command)
            yield from self._lacking(self.test.command(command))
        if any(self.test.problems()):
            yield Comments.from_parent(self, name="comments")

    def _lacking(self, command: Command) -> Iterable[pytest.Item]:
        """An item for each of several targets that cannot run here."""
        if "," in command.options.get("target", ""):
            from .commands import lacking

            for target, reason in lacking(command).items():
                item = Item.from_parent(self, name=f"{command.text}: {target}")
                item.add_marker(pytest.mark.skip(reason=f"target {target}: {reason}"))
                yield item


class Item(pytest.Item):
    """A `// test` line."""

    def runtest(self) -> None:
        from .commands import Skipped, perform

        try:
            diff = perform(Filetest.load(self.path), self.name, self.config.option.cvm_bless)
        except Skipped as e:
            pytest.skip(str(e))
        self._blessed(diff)

    def _blessed(self, diff: list[str]) -> None:
        if diff:
            self.user_properties.append((BLESSED, "\n".join(diff)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if not isinstance(excinfo.value, Failure):
            return super().repr_failure(excinfo, style)
        colour = self.config.get_terminal_writer().hasmarkup
        said = printable(str(excinfo.value.args[0]))
        return "\n".join([said, *coloured(excinfo.value.diff, colour)])

    def reportinfo(self) -> tuple[Path, int, str]:
        return (
            self.path,
            Filetest.load(self.path).command(self.name).line - 1,
            f"{self.path.name}: {self.name}",
        )


class Comments(Item):
    """The comments that are no expectation and look like one, and the expectations that nothing
    looks at.
    """

    def runtest(self) -> None:
        if self.config.option.cvm_bless:
            self._blessed(bless(self.path))
        if problems := list(Filetest.load(self.path).problems()):
            raise Failure("\n".join(f"{self.path}:{n}: {said}" for n, said in problems))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    properties = [
        p
        for r in terminalreporter.stats.get("passed", ())
        for p in getattr(r, "user_properties", ())
    ]
    if diffs := [text for name, text in properties if name == BLESSED]:
        terminalreporter.section("golden lines written")
        for text in diffs:
            for line in coloured(text.splitlines(), terminalreporter._tw.hasmarkup):
                terminalreporter.write_line(line)
