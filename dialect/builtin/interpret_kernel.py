"""Run kernels of the loop language one statement after the other, as they are defined."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..kernel_ir import expressions as ex, loops as ir
from ..kernel_ir.scalar_functions import SCALARS
from ..spec.unmet import Unmet
from ..types.cast_arrays import converted
from ..types.sizes import evaluate


class Interpreter:
    """Arrays by tensor, numbers by index and variable, and sizes by atom."""

    def __init__(self, arrays: Mapping[ex.Tensor, np.ndarray], sizes: Mapping[Any, int]) -> None:
        self.arrays, self.sizes = {**arrays}, sizes
        self.numbers: dict[ex.Expr, Any] = {}

    def value(self, e: ex.Expr) -> Any:
        """The value of an expression, as a NumPy scalar of its type."""
        return self._value(e, {})

    def _value(self, e: ex.Expr, known: dict[ex.Expr, Any]) -> Any:
        if (found := known.get(e)) is None:
            found = known[e] = np.asarray(self._computed(e, known))[()]
        return found

    def _computed(self, e: ex.Expr, known: dict[ex.Expr, Any]) -> Any:
        match e:
            case ex.Const(value, element):
                return element.dtype.type(value)
            case ex.Index() | ex.Var():
                return self.numbers[e]
            case ex.Extent(size):
                return np.int64(evaluate(size, self.sizes))
            case ex.Read(tensor, at):
                places = [int(self._value(i, known)) for i in at]
                return self.arrays[tensor][self._place(tensor, places)]
            case ex.Apply(function, operands):
                return SCALARS[function].numpy(*(self._value(o, known) for o in operands))
            case ex.Cast(operand, element):
                return converted(np.asarray(self._value(operand, known)), element)
            case ex.Bitcast(operand, element):
                return np.asarray(self._value(operand, known)).view(element.dtype)
        raise TypeError(f"kernels have no {type(e).__name__}")

    def _place(self, tensor: ex.Tensor, at: list[int]) -> tuple[int, ...]:
        for axis, (i, n) in enumerate(zip(at, self.arrays[tensor].shape, strict=True)):
            if not 0 <= i < n:
                message = f"index {i} of %{tensor.name} is outside of axis {axis}"
                raise Unmet(f"{message}, whose size is {n}")
        return tuple(at)

    def run(self, block: ir.Block) -> ir.Jump | None:
        """Run a block; return the jump that ends it early, if one does. Raises Unmet for errors."""
        for s in block:
            jump: ir.Jump | None = None
            match s:
                case ir.Let(var, value):
                    self.numbers[var] = self.value(value)
                case ir.Store(tensor, at, value):
                    place = self._place(tensor, [int(self.value(i)) for i in at])
                    self.arrays[tensor][place] = self.value(value)
                case ir.Alloc(tensor):
                    shape = tuple(evaluate(d, self.sizes) for d in tensor.shape)
                    self.arrays[tensor] = np.zeros(shape, tensor.element.dtype)
                case ir.If(condition, then, otherwise):
                    jump = self.run(then if self.value(condition) else otherwise)
                case ir.For():
                    jump = self._for(s)
                case ir.While(condition, body):
                    jump = self._while(condition, body)
                case ir.Assert(condition, message):
                    if not self.value(condition):
                        raise Unmet(message)
                case ir.Fail(message):
                    raise Unmet(message)
                case ir.Break() | ir.Continue() | ir.Return():
                    jump = s
            if jump is not None:
                return jump
        return None

    def _for(self, loop: ir.For) -> ir.Jump | None:
        for i in range(int(self.value(loop.start)), int(self.value(loop.end))):
            self.numbers[loop.index] = np.int64(i)
            jump = self.run(loop.body)
            if isinstance(jump, ir.Break):
                break
            if isinstance(jump, ir.Return) and loop.kind != "parallel":
                return jump
        return None

    def _while(self, condition: ex.Expr, body: ir.Block) -> ir.Jump | None:
        while self.value(condition):
            jump = self.run(body)
            if isinstance(jump, ir.Break):
                break
            if isinstance(jump, ir.Return):
                return jump
        return None
