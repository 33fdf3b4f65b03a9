"""NumPy's functions and methods of traced arrays are definitions: documented, and with NumPy's
parameters.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np

from cvm.numpy import FUNCTIONS
from cvm.tracing.element_methods import ElementMethods
from cvm.tracing.numpy_table import ARRAY_METHODS, NUMPY_FUNCTIONS
from cvm.tracing.reduction_methods import ReductionMethods
from cvm.tracing.shape_methods import ShapeMethods

ROOT = Path(__file__).parents[3]
MIXINS = (ReductionMethods, ShapeMethods, ElementMethods)
METHODS = {
    name: method
    for mixin in MIXINS
    for name, method in vars(mixin).items()
    if inspect.isfunction(method) and not name.startswith("__")
}
OWN_PARAMETERS = ("reshape", "transpose", "astype", "copy", "flatten")  # of the methods alone


def test_functions_are_found_by_their_names() -> None:
    text = "\n".join(p.read_text("utf-8") for p in (ROOT / "cvm" / "numpy").glob("*.py"))
    names = [n for n in FUNCTIONS if not n.endswith(".accumulate")]
    implemented = {n: inspect.unwrap(NUMPY_FUNCTIONS[n]) for n in names}
    assert len(implemented) > 120
    assert [n for n, f in implemented.items() if f"\ndef {f.__name__}(" not in text] == []
    assert [n for n, f in implemented.items() if not (f.__doc__ or "")[:1].isupper()] == []
    plain = [n for n in names if "." not in n and n not in ("around", "amax", "amin")]
    assert [n for n in plain if f"\ndef {n}(" not in text] == []


def test_methods_are_declared_with_numpys_parameters() -> None:
    declared = {*METHODS, "T", "mT", "real", "imag", "at", "__getitem__", "__setitem__"}
    assert declared == {*ARRAY_METHODS}
    for name, method in METHODS.items():
        assert (method.__doc__ or "")[:1].isupper(), name
        if name not in OWN_PARAMETERS:
            numpys = inspect.signature(getattr(np, name, np.ravel)).parameters
            assert {*inspect.signature(method).parameters} - {"self"} <= {*numpys}, name
