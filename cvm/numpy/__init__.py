"""NumPy's functions of traced arrays that are written in terms of others: statistics, order, linear
algebra and layout.

Each has NumPy's name, parameters and meaning; array_api has those that are operators. A function
whose result's size depends on elements cannot be compiled, and REFUSED says what there is
instead.
"""

from ..tracing.trace import NUMPY_FUNCTIONS, TracedArray, fail, ufunc_of_trace
from . import elements, layout, products, statistics  # noqa: F401  (they fill the table)
from .array_api import checked
from .table import ARRAY_FUNCTIONS

REFUSED = {
    **dict.fromkeys(
        ("nonzero", "argwhere", "flatnonzero", "unique", "extract", "compress", "trim_zeros"),
        "its result's size depends on the elements: use np.where, np.count_nonzero, or "
        "np.histogram with edges",
    ),
    **dict.fromkeys(
        ("put", "place", "copyto", "fill_diagonal", "putmask"),
        "it changes an array in place: use np.where, or x.at[...].set(values)",
    ),
}
ARRAY_FUNCTIONS["around"] = ARRAY_FUNCTIONS["round"]
METHODS = (
    "var",
    "std",
    "argmax",
    "argmin",
    "argsort",
    "cumsum",
    "cumprod",
    "take",
    "diagonal",
    "trace",
    "round",
    "copy",
    "dot",
    "choose",
    "searchsorted",
)
NUMPY_FUNCTIONS |= {n: checked(f"np.{n}", f) for n, f in ARRAY_FUNCTIONS.items()}
NUMPY_FUNCTIONS |= {
    n: lambda *_, t=f"np.{n} cannot be compiled: {why}", **__: fail(t) for n, why in REFUSED.items()
}
for _name in METHODS:
    setattr(TracedArray, _name, checked(_name, ARRAY_FUNCTIONS[_name]))
for _name in ("conj", "conjugate"):
    setattr(
        TracedArray, _name, lambda x: ufunc_of_trace("conjugate", x) if x.dtype.kind == "c" else x
    )
for _name in ("real", "imag"):
    setattr(TracedArray, _name, property(ARRAY_FUNCTIONS[_name]))
