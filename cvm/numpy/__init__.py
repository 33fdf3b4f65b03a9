"""NumPy's functions of traced arrays, by NumPy's names, parameters and meaning, a module for each
topic.

`implements` registers each function at its definition. A function whose result's size depends on
elements cannot be compiled, and REFUSED says what there is instead.
"""

from functools import partial
from typing import NoReturn

from ..tracing.diagnose import fail
from ..tracing.numpy_table import NUMPY_FUNCTIONS
from . import elements, layout, order, products, statistics, updates  # noqa: F401  (they register)

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
FUNCTIONS = tuple(n for n in NUMPY_FUNCTIONS if not n.endswith((".reduce", ".at")))


def _refuse(message: str, *_: object, **__: object) -> NoReturn:
    fail(message)


for _name, _why in REFUSED.items():
    NUMPY_FUNCTIONS[_name] = partial(_refuse, f"np.{_name} cannot be compiled: {_why}")
