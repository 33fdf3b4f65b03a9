"""Watch the passes of `cvm opt`: show the program before and after each, measure, verify, and keep
a reproducer.
"""

import platform
import sys
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from difflib import unified_diff
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cvm
from cvm.dialect.ir.function import Function
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.program_printer import print_module
from cvm.dialect.kernel_ir.execution_plan import Kernels, Plan
from cvm.dialect.kernel_ir.formulas import Formulas
from cvm.dialect.kernel_ir.kernel_printer import kernels_text, plan_text
from cvm.dialect.kernel_ir.loops import Kernel
from cvm.dialect.support.files import write_file
from cvm.lowering.clocked_plan import StepPlan
from cvm.lowering.formulas.formula_printer import formulas_text
from cvm.lowering.loops.build_loops import build_loops
from cvm.lowering.pass_context import Context
from cvm.lowering.passes import Pass, run_passes
from cvm.lowering.verify_passes import verified
from cvm.terminal.display import duration, timed
from cvm.terminal.usage import Usage

PACKAGES = ("numpy", "llvmlite", "lark")
HEADS = ("pipeline", "target", "cpu")  # of a reproducer


@dataclass
class Timing:
    """A node of the tree of times: the whole, a function or kernel, a level, a pass."""

    name: str
    seconds: float = 0.0
    children: "dict[str, Timing]" = field(default_factory=dict[str, "Timing"])

    def add(self, path: Sequence[str], seconds: float) -> None:
        self.seconds += seconds
        if path:
            self.children.setdefault(path[0], Timing(path[0])).add(path[1:], seconds)

    def lines(self, whole: float, depth: int = 0) -> Iterator[str]:
        yield (
            f"{duration(self.seconds):>8}  {self.seconds / (whole or 1):4.0%}  "
            f"{'  ' * depth}{self.name}"
        )
        for child in self.children.values():
            yield from child.lines(whole, depth + 1)

    def tree(self) -> dict[str, Any]:
        children = [c.tree() for c in self.children.values()]
        return {
            "name": self.name,
            "seconds": self.seconds,
            **({"children": children} if children else {}),
        }


@dataclass
class Watch:
    """The options of a run, and what has been seen of it."""

    before: Set[str] = frozenset()  # the passes before which the program is shown, or all
    after: Set[str] = frozenset()
    changed: bool = False
    generic: bool = False
    verifies: bool = False
    timing: Timing = field(default_factory=lambda: Timing("all"))
    failed: str = ""  # the pass that an error came from, while it is on its way

    def over(self, passes: Sequence[Pass], of: str) -> list[Pass]:
        """The passes, watched while they transform a function or kernels of this name."""
        return [self._watched(p, of) for p in passes]

    def _watched(self, step: Pass, of: str) -> Pass:
        def measured(item: object, context: Context) -> Any:
            result, seconds = timed(step.run, item, context)
            self.timing.add((f"@{of}", step.level, step.name), seconds)
            return result

        checked = replace(step, run=measured)
        if self.verifies and step.package == "cvm":  # others are verified already
            checked = verified(checked)

        def run(item: Any, context: Context) -> Any:
            if {step.name, "all"} & self.before:
                print(f"// before {step.name}\n{text_of(item, self.generic)}", file=sys.stderr)
            self.failed = step.name
            result = checked.run(item, context)
            after = item if result is None else result
            if self.verifies and isinstance(after, Formulas):
                verify_formulas(step, after, context)
            self.failed = ""
            if {step.name, "all"} & self.after:
                text = text_of(after, self.generic)
                shown = (
                    f": no change of @{item.name}"
                    if text == text_of(item, self.generic)
                    else f"\n{text}"
                )
                print(f"// after {step.name}{shown}", file=sys.stderr)
            if self.changed and after is not item:
                old, new = (text_of(x, self.generic).splitlines() for x in (item, after))
                before = f"@{item.name} before {step.name}"
                if diff := [*unified_diff(old, new, before, f"after {step.name}", lineterm="")]:
                    print("\n".join(diff), file=sys.stderr)
            return result

        return replace(step, run=run)


def verify_formulas(step: Pass, formulas: Formulas, context: Context) -> None:
    """Verify the plain loops of formulas, which have the formulas' accesses, types and order."""
    verified(replace(step, run=lambda item, _: run_passes([build_loops], item, context))).run(
        formulas, context
    )


def text_of(item: object, generic: bool = False) -> str:
    match item:
        case Function():
            return print_module(Module({item.name: item}), generic)
        case Formulas():
            return formulas_text(item)
        case Plan():
            return plan_text(item)
        case Kernels() | Kernel():
            return kernels_text(getattr(item, "kernels", [item]))
        case StepPlan():
            return plan_text(*item.plans)
    raise TypeError(f"no text for {type(item).__name__}")


# Reproducers


def write_reproducer(
    path: Path, program: str, error: BaseException, failed: str, heads: dict[str, str]
) -> None:
    """A program with all that makes a pass fail on it, as comments at its head."""
    lines = [
        f"// the pass {failed} fails: {type(error).__name__}: "
        f"{(str(error).splitlines() or [''])[0]}",
        f"// cvm {cvm.__version__}, Python {platform.python_version()}, "
        f"{', '.join(f'{p} {version(p)}' for p in PACKAGES)}",
        *(f"// {head}: {heads[head]}" for head in HEADS if heads.get(head)),
    ]
    write_file(path, "\n".join([*lines, "", program]).encode())


def read_reproducer(text: str, name: str) -> dict[str, str]:
    heads: dict[str, str] = {}
    for line in text.splitlines():
        if not line.startswith("// "):
            break
        head, separator, value = line[3:].partition(": ")
        if separator and head in HEADS:
            heads[head] = value
    if not heads:
        raise Usage(f"{name} is no reproducer: it has no line `// pipeline: ` at its head")
    return heads
