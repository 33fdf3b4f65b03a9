"""Shared parts of the ONNX rules: the program so far, the table of rules, and checks of constants and shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from cvm.dialect.builtin import Const, Data
from cvm.dialect.ir.sizes import Dim
from cvm.dialect.ir.types import BY_DTYPE, TensorType
from cvm.dialect.program.builder import Builder, Node

Known: TypeAlias = "Node | np.ndarray"
Attributes: TypeAlias = Mapping[str, Any]


class Unsupported(Exception):
    """An ONNX operator or attribute that is not supported, with the reason."""


@dataclass
class Importer:
    """The values of a graph so far; `archive` is the file that its constants will be in."""

    archive: str | None
    builder: Builder = field(default_factory=Builder)
    values: dict[str, Known] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def node(self, value: Known) -> Node:
        """The value as one of the program; a constant becomes an operation of its own."""
        if isinstance(value, Node):
            return value
        array = np.ascontiguousarray(value)
        if array.dtype not in BY_DTYPE:
            raise Unsupported(f"constants of {array.dtype}")
        large = self.archive is not None and array.size > 8
        name = f"c{len(self.constants)}"
        data = Data(array, (self.archive or "", name)) if large else Data(array)
        if large:
            self.constants[name] = array
        type = TensorType(array.shape, BY_DTYPE[array.dtype])
        return self.builder.node(self.builder.add(Const(data, type), names=[name])[0])

    def apply(self, name: str, *operands: Known, **attributes: Any) -> Node:
        return self.builder.apply(name, *map(self.node, operands), **attributes)


Rule = Callable[[Importer, Sequence[Any], Attributes], Any]
OPERATIONS: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    def enter(function: Rule) -> Rule:
        OPERATIONS.update(dict.fromkeys(names, function))
        return function

    return enter


def known(value: Known | None, what: str) -> np.ndarray:
    if not isinstance(value, np.ndarray):
        raise Unsupported(f"{what} that is not a constant")
    return value


def integers(value: Known | None, what: str) -> tuple[int, ...]:
    return tuple(int(n) for n in known(value, what).reshape(-1))


def static(value: Known, what: str, axes: Sequence[int] | None = None) -> tuple[int, ...]:
    """The shape, or its sizes along these axes; raises Unsupported if one is unknown."""
    shape: Sequence[Dim] = value.shape if axes is None else [value.shape[a] for a in axes]
    if not all(isinstance(n, int) for n in shape):
        raise Unsupported(f"{what} of unknown sizes")
    return tuple(n for n in shape if isinstance(n, int))


def aligned(to: Importer, *given: Known) -> list[Node]:
    """The values as nodes of one rank, the shorter ones filled up with 1 on the left."""
    nodes = [to.node(x) for x in given]
    rank = max(n.rank for n in nodes)
    return [n.dimshuffle([*["x"] * (rank - n.rank), *range(n.rank)]) for n in nodes]
