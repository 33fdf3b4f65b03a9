"""Write a function's formulas as MLIR: one `linalg.generic` for each formula, and one before it for
each reduction in it.

    %s[i, j] = sum[k](%x[i, k] * %w[j, k])
        =>  linalg.generic {indexing_maps = [(i, j, k) -> (i, k), (j, k), (i, j)],
                            iterator_types = ["parallel", "parallel", "reduction"]}

An element that is read at plain indices becomes an input of the operation; any other (shifted,
guarded, gathered) is read by `tensor.extract` at `linalg.index`. A reduction under a guard or
inside another one becomes an `scf.for`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np

from ...dialect.kernel_ir import expressions as ex
from ...dialect.kernel_ir.formulas import Formula, Formulas, View
from ...dialect.kernel_ir.integer_lookup_tables import ROWS
from ...dialect.kernel_ir.scalar_functions import SCALARS
from ...dialect.kernel_ir.traverse import children, rewrite
from ...dialect.support.diagnostics import NOWHERE, Diagnostic, TargetError
from ...dialect.types.sizes import Dim, Size, same_size
from ...dialect.types.tensor_types import I1, ElementType
from ..math import FUNCTIONS, in_primitives
from .scalars import Unsupported, computed, constant, converted, literal, mlir_type

Indices: TypeAlias = tuple[ex.Index, ...]
COLUMNS = {name: rows for rows in ROWS for name in rows.columns}
LISTED = 64  # elements of a constant up to which each is written by itself: the others are bytes
_SIZES = {
    "//": "floordivsi",
    "max": "maxsi",
    "min": "minsi",
    "*": "muli",
}  # the operations of computed sizes


def linalg_text(program: Formulas) -> str:
    """The module of one function; raises TargetError for an operation that has no formula, or
    complex numbers.
    """
    writer = _Writer(program)
    try:
        return writer.module()
    except Unsupported as e:
        message = f"an operation of {program.name} is not lowered to linalg: {e}"
        raise TargetError(Diagnostic(message, writer.span)) from None


class _Writer:
    """A function being written: its lines, and the name of every tensor, size and scalar so far."""

    def __init__(self, program: Formulas) -> None:
        self.program = program
        self.lines: list[str] = []
        self.depth = 2
        self.count = 0
        self.names: dict[object, str] = {}  # of tensors, and of scalars in the body at work
        self.sizes: dict[object, str] = {}
        self.span = NOWHERE

    def module(self) -> str:
        program = self.program
        self.names |= {t: f"%arg{n}" for n, t in enumerate(program.arguments)}
        for tensor in program.arguments:
            for axis, size in enumerate(tensor.shape):
                if isinstance(size, Size) and size.is_atom and size.key not in self.sizes:
                    at = self.emit(f"arith.constant {axis} : index")
                    dim = f"tensor.dim {self.names[tensor]}, {at} : {self.type(tensor)}"
                    self.sizes[size.key] = self.emit(dim)
        for tensor, array in program.constants.items():
            self.names[tensor] = self.emit(
                f"arith.constant {_dense(array, tensor)} : {self.type(tensor)}"
            )
        for step in program.steps:
            formula = step.formula if isinstance(step, View) else step
            self.span = formula.span
            if not isinstance(formula, Formula):
                raise Unsupported("it is computed by loops, and has no formula")
            self.formula(formula)
        results = ", ".join(self.names[t] for t in program.results)
        types = ", ".join(self.type(t) for t in program.results)
        ret = f"    return {results} : {types}" if results else "    return"
        heads = ", ".join(f"{self.names[t]}: {self.type(t)}" for t in program.arguments)
        head = f"  func.func @{program.name}({heads}) -> ({types}) {{"
        return "\n".join(["module {", head, *self.lines, ret, "  }", "}", ""])

    def emit(self, operation: str) -> str:
        """A line with a result; its name."""
        self.count += 1
        self.line(f"%{self.count} = {operation}")
        return f"%{self.count}"

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    @contextmanager
    def block(self, head: str, end: str = "}") -> Iterator[None]:
        """Emit lines inside a region, whose values are not visible after it."""
        self.line(head)
        self.depth += 1
        known = dict(self.names)
        yield
        self.names = known
        self.depth -= 1
        self.line(end)

    def type(self, tensor: ex.Tensor) -> str:
        sizes = "".join(f"{d}x" if isinstance(d, int) else "?x" for d in tensor.shape)
        return f"tensor<{sizes}{mlir_type(tensor.element)}>"

    def size(self, dim: Dim) -> str:
        """A size as an index value, computed from those of the arguments."""
        if isinstance(dim, int):
            return self.emit(f"arith.constant {dim} : index")
        if dim.key in self.sizes:
            return self.sizes[dim.key]
        total = self.emit(f"arith.constant {dim.constant} : index")
        for atom, factor in dim.terms:
            if len(atom) < 3:
                value = self.sizes[Size.of_atom(atom).key]
            else:
                a, b = (self.size(d) for d in atom[1:])
                value = self.emit(f"arith.{_SIZES[atom[0]]} {a}, {b} : index")
            times = self.emit(f"arith.constant {factor} : index")
            part = self.emit(f"arith.muli {value}, {times} : index")
            total = self.emit(f"arith.addi {total}, {part} : index")
        if self.depth == 2:
            self.sizes[dim.key] = total
        return total

    def empty(self, shape: tuple[Dim, ...], element: ElementType) -> tuple[str, str]:
        """A tensor without values: its name and type."""
        dynamic = [self.size(d) for d in shape if not isinstance(d, int)]
        type = self.type(ex.Tensor("", shape, element))
        return self.emit(f"tensor.empty({', '.join(dynamic)}) : {type}"), type

    def formula(self, formula: Formula) -> None:
        value = self.lifted(formula.value, formula.indices)
        if (
            isinstance(value, ex.Read)
            and value.indices == formula.indices
            and value is not formula.value
        ):
            self.names[formula.tensor] = self.names[value.tensor]  # the reduction is all there is
        else:
            self.names[formula.tensor] = self.generic(formula.tensor, formula.indices, value)

    def lifted(self, e: ex.Expr, over: Indices) -> ex.Expr:
        """The value with each reduction that can stand by itself read from a tensor."""

        def change(node: ex.Expr) -> ex.Expr | None:
            if isinstance(node, ex.When):
                return node  # what it guards stays inside
            if isinstance(node, ex.Reduce):
                tensor = ex.Tensor(f"r{self.count}", tuple(i.extent for i in over), node.type)
                self.names[tensor] = self.generic(tensor, over, node.body, node)
                return ex.Read(tensor, over)
            return None

        return rewrite(e, change)

    def generic(
        self, tensor: ex.Tensor, over: Indices, value: ex.Expr, reduce: ex.Reduce | None = None
    ) -> str:
        inner = () if reduce is None else reduce.indices
        every = (*over, *inner)
        place: dict[ex.Expr, int] = {i: n for n, i in enumerate(every)}
        inputs = [r for r in _reads(value) if _whole(r, place)]
        covered = {i for r in inputs for i in r.indices} | set(over)
        operands = [
            (self.names[r.tensor], self.type(r.tensor), [place[i] for i in r.indices])
            for r in inputs
        ]
        if missing := [
            i for i in inner if i not in covered
        ]:  # their extents come from a tensor that is not read
            name, type = self.empty(tuple(i.extent for i in missing), I1)
            operands.append((name, type, [place[i] for i in missing]))
        out, out_type = self.empty(tensor.shape, tensor.element)
        element = mlir_type(tensor.element)
        if reduce is not None:
            first = self.identity(reduce)
            out = self.emit(
                f"linalg.fill ins({first} : {element}) outs({out} : {out_type}) -> {out_type}"
            )
        dims = ", ".join(f"d{n}" for n in range(len(every)))
        maps = [*(at for _, _, at in operands), list(range(len(over)))]
        shown = ", ".join(
            f"affine_map<({dims}) -> ({', '.join(f'd{n}' for n in at)})>" for at in maps
        )
        kinds = ", ".join(['"parallel"'] * len(over) + ['"reduction"'] * len(inner))
        values, value_types = (
            ", ".join(each) for each in ([n for n, _, _ in operands], [t for _, t, _ in operands])
        )
        ins = f" ins({values} : {value_types})" if operands else ""
        self.count += 1
        result = f"%{self.count}"
        head = (
            f"{result} = linalg.generic {{indexing_maps = [{shown}], iterator_types = "
            f"[{kinds}]}}{ins} outs({out} : {out_type}) {{"
        )
        with self.block(head, f"}} -> {out_type}"):
            names = [f"%e{result[1:]}_{n}" for n in range(len(maps))]
            types = [t.rpartition("x")[2].rpartition("<")[2].rstrip(">") for _, t, _ in operands]
            given = ", ".join(f"{n}: {t}" for n, t in zip(names, [*types, element], strict=True))
            self.lines.append(f"{'  ' * (self.depth - 1)}^bb0({given}):")
            self.names |= zip(((r.tensor, r.indices) for r in inputs), names, strict=False)
            for i in _indices(value, {(r.tensor, r.indices) for r in inputs}):
                if i in place:
                    at = self.emit(f"linalg.index {place[i]} : index")
                    self.names[i] = self.emit(f"arith.index_cast {at} : index to i64")
            found = self.scalar(value)
            if reduce is not None:
                found = self.apply(reduce.function, [names[-1], found], reduce.type)
            self.line(f"linalg.yield {found} : {element}")
        return result

    def apply(self, function: str, operands: list[str], element: ElementType) -> str:
        if (value := computed(function, operands, element, self.emit)) is None:
            raise Unsupported(f"MLIR has no {function} of {element}")
        return value

    def scalar(self, e: ex.Expr) -> str:
        """The name of an expression's value, computed once in a region."""
        if e not in self.names:
            self.names[e] = self.value(e)
        return self.names[e]

    def value(self, e: ex.Expr) -> str:
        match e:
            case ex.Const(value, type):
                return self.emit(constant(value, type))
            case ex.Extent(size):
                return self.emit(f"arith.index_cast {self.size(size)} : index to i64")
            case ex.Read(tensor, indices):
                if (name := self.names.get((tensor, indices))) is not None:
                    return name
                at = [
                    self.emit(f"arith.index_cast {self.scalar(i)} : i64 to index") for i in indices
                ]
                return self.emit(
                    f"tensor.extract {self.names[tensor]}[{', '.join(at)}] : {self.type(tensor)}"
                )
            case ex.Cast(operand, type):
                return converted(self.scalar(operand), operand.type, type, self.emit)
            case ex.Bitcast(operand, type):
                if (source := mlir_type(operand.type)) == mlir_type(type):
                    return self.scalar(operand)
                return self.emit(
                    f"arith.bitcast {self.scalar(operand)} : {source} to {mlir_type(type)}"
                )
            case ex.When(condition, then, otherwise):
                return self.when(self.scalar(condition), then, otherwise)
            case ex.Reduce():
                return self.loop(e, e.indices, None)
            case ex.Check(_, value):
                return self.scalar(value)
            case ex.Apply(function, operands, _):
                if function in FUNCTIONS:
                    return self.scalar(in_primitives(e))
                if function in COLUMNS:
                    return self.looked_up(
                        function, self.scalar(operands[0]), mlir_type(operands[0].type)
                    )
                return self.apply(function, [self.scalar(o) for o in operands], operands[-1].type)
        raise Unsupported(f"MLIR has no {e.__class__.__name__}")

    def looked_up(self, column: str, index: str, type: str) -> str:
        """The number of a column in the row of an index, modulo their number."""
        numbers = COLUMNS[column].numbers()[:, COLUMNS[column].columns.index(column)]
        table = f"tensor<{len(numbers)}xf64>"
        held = self.emit(f'arith.constant dense<"0x{numbers.tobytes().hex().upper()}"> : {table}')
        last = self.emit(f"arith.constant {len(numbers) - 1} : {type}")
        row = self.emit(f"arith.andi {index}, {last} : {type}")
        at = self.emit(f"arith.index_cast {row} : {type} to index")
        return self.emit(f"tensor.extract {held}[{at}] : {table}")

    def when(self, condition: str, then: ex.Expr, otherwise: ex.Expr) -> str:
        """A guarded value: only the side that is taken is computed."""
        self.count += 1
        name = f"%{self.count}"
        type = mlir_type(then.type)
        with self.block(f"{name} = scf.if {condition} -> ({type}) {{", "} else {"):
            self.line(f"scf.yield {self.scalar(then)} : {type}")
        self.lines.pop()
        with self.block("} else {"):
            self.line(f"scf.yield {self.scalar(otherwise)} : {type}")
        return name

    def identity(self, reduce: ex.Reduce) -> str:
        """The value that a reduction begins with."""
        identity = SCALARS[reduce.function].identity
        assert identity is not None, f"{reduce.function} has no identity"
        return self.emit(constant(identity(reduce.type), reduce.type))

    def loop(self, reduce: ex.Reduce, left: Indices, so_far: str | None) -> str:
        """A reduction inside an element, as a nest of loops that carries its value."""
        if so_far is None:
            so_far = self.identity(reduce)
        if not left:
            return self.apply(reduce.function, [so_far, self.scalar(reduce.body)], reduce.type)
        low = self.size(0)
        high = self.size(left[0].extent)
        step = self.size(1)
        self.count += 1
        name = f"%{self.count}"
        type = mlir_type(reduce.type)
        carried, at = f"%c{self.count}", f"%i{self.count}"
        head = (
            f"{name} = scf.for {at} = {low} to {high} step {step} iter_args({carried} = "
            f"{so_far}) -> ({type}) {{"
        )
        with self.block(head):
            self.names[left[0]] = self.emit(f"arith.index_cast {at} : index to i64")
            self.line(f"scf.yield {self.loop(reduce, left[1:], carried)} : {type}")
        return name


def _reads(e: ex.Expr) -> list[ex.Read]:
    """The reads that every way through an expression makes, each place once."""
    distinct: dict[tuple[ex.Tensor, tuple[ex.Expr, ...]], ex.Read] = {}

    def walk(node: ex.Expr) -> None:
        if isinstance(node, ex.Read):
            distinct.setdefault((node.tensor, node.indices), node)
        if not isinstance(node, ex.Reduce):
            for child in (node.condition,) if isinstance(node, ex.When) else children(node):
                walk(child)

    walk(e)
    return list(distinct.values())


def _whole(read: ex.Read, place: dict[ex.Expr, int]) -> bool:
    """Test whether a tensor is read at plain indices that run over its axes."""
    return all(
        isinstance(i, ex.Index) and i in place and same_size(i.extent, d)
        for i, d in zip(read.indices, read.tensor.shape, strict=True)
    )


def _indices(e: ex.Expr, given: set[tuple[ex.Tensor, tuple[ex.Expr, ...]]]) -> list[ex.Index]:
    """The indices that an expression computes with, besides those of the elements that are
    given.
    """
    indices: dict[ex.Index, None] = {}

    def visit(node: ex.Expr) -> ex.Expr | None:
        if isinstance(node, ex.Index):
            indices[node] = None
        return node if isinstance(node, ex.Read) and (node.tensor, node.indices) in given else None

    rewrite(e, visit)
    return list(indices)


def _dense(array: np.ndarray, tensor: ex.Tensor) -> str:
    if not array.size:
        return "dense<>"
    if (array == array.flat[0]).all() and array.dtype.kind != "f":
        return f"dense<{literal(array.flat[0], tensor.element)}>"
    if tensor.element is I1:
        array = array.astype(bool)
    elif array.size > LISTED:
        return f'dense<"0x{np.ascontiguousarray(array).tobytes().hex().upper()}">'

    def nested(part: np.ndarray) -> str:
        if part.ndim:
            return f"[{', '.join(map(nested, part))}]"
        return literal(part.item() if part.dtype.kind != "f" else part[()], tensor.element)

    return f"dense<{nested(array)}>"
