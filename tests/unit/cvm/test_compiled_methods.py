"""Methods and other callables, compiled: each instance has its own, as long as it lives."""

from __future__ import annotations

import copy
import functools
import gc
import operator
import pickle
import weakref
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import cvm


def summed(model: Any) -> float:
    return float(model.scaled(np.ones(3, np.float32)).sum())


@dataclass
class Unhashable:
    factor: float

    @cvm.compile
    def scaled(self, x):
        return x * self.factor


@dataclass(frozen=True)
class Alike:
    factor: float = field(compare=False)

    @cvm.compile
    def scaled(self, x):
        return x * self.factor


class Slotted:
    __slots__ = ("factor",)

    def __init__(self, factor):
        self.factor = factor

    @cvm.compile
    def scaled(self, x):
        return x * self.factor


@pytest.mark.parametrize("kind", [Unhashable, Alike, Slotted])
def test_instances_of_all_kinds_are_told_apart(kind: Any) -> None:
    models = [kind(2.0), kind(3.0)]
    assert [summed(m) for m in (*models, *models)] == [6, 9, 6, 9]


def test_an_instance_keeps_its_compiled_methods_and_a_copy_does_not() -> None:
    model = Unhashable(2.0)
    assert model.scaled is model.scaled and summed(model) == 6
    for other in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        other.factor = 5.0
        assert (summed(other), summed(model), summed(other)) == (15, 6, 15)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_callables_without_a_name() -> None:
    class Doubled:
        def __call__(self, x: Any) -> Any:
            return x + x

    x = np.arange(3, dtype=np.int32)
    assert cvm.compile(Doubled())(x).tolist() == [0, 2, 4]
    f = cvm.compile(functools.partial(operator.sub, x + 1))
    assert f(x).tolist() == [1, 1, 1] and f.__name__ == "partial"
