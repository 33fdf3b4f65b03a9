"""Results in the storage of arguments that they destroy:  y[i] = f(x[i])  =>  x[i] = f(x[i]).

Only where the kernel reads the argument at the index it writes, and nothing reads it later; the caller copies otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..dialect.index import Const, Expr, Read, Tensor, Var, rewrite, walk
from ..dialect.loops import Block, For, If, Kernel, Store, expressions, map_expressions, statements


def in_place(
    kernels: Sequence[Kernel], results: Sequence[Tensor], arguments: Sequence[Tensor], pairs: Mapping[int, int]
) -> tuple[list[Kernel], tuple[Tensor, ...]]:
    """The kernels and results with those of `pairs`, result to argument, computed in the argument's storage where that is safe."""
    made, found = list(kernels), list(results)
    for n, k in pairs.items():
        result, argument = found[n], arguments[k]
        writers = [
            i for i, kernel in enumerate(made) if result in kernel.parameters[len(kernel.parameters) - kernel.results :]
        ]
        if (
            len(writers) == 1
            and result not in arguments
            and result not in (*found[:n], *found[n + 1 :])
            and _safe(made, writers[0], result, argument)
        ):
            made = [_renamed(kernel, result, argument) if result in kernel.parameters else kernel for kernel in made]
            found[n] = argument
    return made, tuple(found)


def _safe(kernels: Sequence[Kernel], writer: int, result: Tensor, argument: Tensor) -> bool:
    if any(argument in kernel.parameters for kernel in kernels[writer + 1 :]) or not _last(kernels[writer], result):
        return False
    stores = [s for s in statements(kernels[writer].body) if isinstance(s, Store) and s.tensor is result]
    if len(stores) != 1:
        return False
    for s in statements(kernels[writer].body):
        for e in expressions(s):
            for read in walk(e):
                if isinstance(read, Read) and read.tensor is result:
                    return False
                if isinstance(read, Read) and read.tensor is argument and not _same(read.indices, stores[0].indices):
                    return False
    return True


def _last(kernel: Kernel, result: Tensor) -> bool:
    """Whether nothing is read after the result is stored: the kernel has no other, or stores names and numbers after it."""
    if kernel.results == 1:
        return True
    block = kernel.body
    while len(block) == 1 and isinstance(block[0], For):
        block = block[0].body
    after = block[next((n for n, s in enumerate(block) if isinstance(s, Store) and s.tensor is result), 0) :]
    return all(isinstance(s, Store) and isinstance(s.value, (Var, Const)) for s in after)


def _same(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    return len(a) == len(b) and all(i is j for i, j in zip(a, b, strict=True))


def _renamed(kernel: Kernel, old: Tensor, new: Tensor) -> Kernel:
    def change(e: Expr) -> Expr:
        return rewrite(
            e, lambda x: Read(new, tuple(map(change, x.indices))) if isinstance(x, Read) and x.tensor is old else None
        )

    def block(b: Block) -> Block:
        made = []
        for s in map_expressions(b, change):
            match s:
                case For(_, body):
                    s = replace(s, body=block(body))
                case If(condition, then, otherwise):
                    s = If(condition, block(then), block(otherwise))
                case Store(tensor) if tensor is old:
                    s = replace(s, tensor=new)
            made.append(s)
        return tuple(made)

    written = old in kernel.parameters[len(kernel.parameters) - kernel.results :]
    others = tuple(p for p in kernel.parameters if p is not old and p is not new)
    parameters = (*others, new) if written else tuple(new if p is old else p for p in kernel.parameters)
    return replace(kernel, parameters=parameters, body=block(kernel.body))
