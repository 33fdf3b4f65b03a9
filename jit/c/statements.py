"""Statements of the loop language as C: one kernel, without knowledge of operators."""

from ...dialect.kernel_ir import expressions as ex, loops as ir
from ...dialect.support.diagnostics import Span
from .addresses import Val, fits
from .expressions import Expressions
from .spelling import SHIFT


class Statements(Expressions):
    """One kernel's statements being emitted."""

    def block(self, block: ir.Block) -> None:
        outer = dict(self.known)
        for s in block:
            self.emit(s)
        self.known = outer

    def inner(self, block: ir.Block) -> None:
        with self.deeper():
            self.block(block)

    def emit(self, s: ir.Statement) -> None:
        match s:
            case ir.For():
                self.loop(s)
            case ir.If(condition, then, otherwise):
                self.statement(condition)
                self.line(f"if ({self.exact(condition).text}) {{")
                self.inner(then)
                if otherwise:
                    self.line("} else {")
                    self.inner(otherwise)
                self.line("}")
            case ir.Let(var, value):
                self.statement(value)
                found = self.exact(value)
                ctype = found.ctype if found.ctype == self.c.word else self.c.value_type(var.type)
                self.known[id(var)] = self.named(found, ctype, var.name)
                self.kept.append(var)
            case ir.Alloc():
                self.allocate(s)
            case ir.Store(tensor, at, value):
                self.statement(*at, value)
                self.store(tensor, at, value)
            case ir.Assert(condition, message, span):
                self.statement(condition)
                self.check(self.exact(condition), message, span)
            case ir.While(condition, body):
                self.line("for (;;) {")
                self.inner((ir.If(ex.apply("not", condition), (ir.Break(),)), *body))
                self.line("}")
            case ir.Break() | ir.Continue():
                self.line(f"{type(s).__name__.lower()};")
            case ir.Return():
                self.leave()
            case ir.Fail(message, span):
                self.fail(message, span)
            case ir.Prefetch():
                pass  # it computes nothing
            case _:
                raise NotImplementedError(f"{type(s).__name__} in C")

    def loop(self, s: ir.For, pragma: str = "") -> None:
        self.statement(s.start, s.end)
        start, end = self.address(s.start), self.address(s.end)
        name = self.fresh(s.index.name)
        word = self.c.word
        ctype = word if fits(s.end) and start.ctype == word else self.c.long_word
        if pragma:
            self.line(pragma)
        self.counted(s, (name, ctype), start.text, end.at(SHIFT), f"++{name}")

    def counted(self, s: ir.For, counter: tuple[str, str], start: str, end: str, step: str) -> None:
        """A loop of C, whose counter is given by name and type."""
        name, ctype = counter
        self.line(f"for ({ctype} {name} = {start}; {name} < {end}; {step}) {{")
        outer = dict(self.known)
        self.known[id(s.index)] = Val(name, ctype)
        self.kept.append(s.index)
        self.inner(s.body)
        self.known = outer
        self.line("}")

    def allocate(self, s: ir.Alloc) -> None:
        """Declare a buffer."""
        raise NotImplementedError

    def leave(self) -> None:
        """End the kernel."""
        self.line("return;")

    def fail(self, message: str, span: Span) -> None:
        """End the kernel by a failure."""
        raise NotImplementedError

    def check(self, condition: Val, message: str, span: Span) -> None:
        """Report a failure unless the condition holds."""
        raise NotImplementedError
