"""Writes docs/numpy.md's table: every function of np, np.linalg and np.fft, and what it is in a
traced function.

python docs/numpy_table.py
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]

from cvm.dialect.numpy import elementwise as elementwise  # noqa: E402  (loads the table)
from cvm.dialect.numpy.ufunc_table import UFUNCS  # noqa: E402

import cvm.transforms.linear_algebra  # noqa: E402, F401  (it registers functions)
from cvm.numpy import REFUSED  # noqa: E402
from cvm.numpy.ufuncs import ALIASES, RESULTS  # noqa: E402
from cvm.tracing.numpy_table import NUMPY_FUNCTIONS  # noqa: E402

PAGE = ROOT / "docs" / "numpy.md"
BEGIN, END = "<!-- table: written by docs/numpy_table.py -->\n", "<!-- end of table -->\n"
FUNCTIONS = [n for n in NUMPY_FUNCTIONS if n not in REFUSED and not n.endswith((".reduce", ".at"))]
DIFFERS = {
    **dict.fromkeys(
        ("maximum", "minimum", "fmax", "fmin"),
        "of 0.0 and -0.0 always the same one, where NumPy's choice depends on the position "
        "in the array",
    ),
    **dict.fromkeys(
        ("logaddexp", "logaddexp2"),
        "within 4 units in the last place of the larger of 1 and the result",
    ),
    **dict.fromkeys(
        ("power", "pow"),
        "within 2 ulp of the exact value; -0 and -inf to the power 0.5 are the root's -0 "
        "and NaN also of arrays of rank 0 that are scalars in NumPy, and 0 and infinity "
        "where f16 has a Python number of the arguments for its exponent; of complex "
        "numbers whole powers below 100 are the same, others z to the w within 16 (1 + |w "
        "log z|) ulp",
    ),
    "float_power": "within 2 ulp of the exact value; of complex "
    "numbers whole powers below 100 are the "
    "same, others z to the w within 16 (1 + |w log z|) ulp",
    "bincount": "minlength is above all elements, or it is an error of the call",
    "var": "floats are summed in the documented order; complex numbers take no real dtype",
    "full": "a traced fill value is refused: use np.full_like(x, value, shape=...)",
    **dict.fromkeys(
        ("array", "asarray", "asanyarray", "ascontiguousarray"),
        "an array of traced ones is refused: use np.stack",
    ),
    **dict.fromkeys(
        ("linalg.solve", "linalg.inv", "linalg.det"),
        "by elimination with partial pivoting, in one order of operations; a singular matrix gives "
        "infinities or NaN; sizes of matrices are known",
    ),
    "linalg.cholesky": "columns follow each other; a matrix that is not positive definite gives NaN",
    **dict.fromkeys(("cov", "corrcoef"), "sums are in the documented order; no weights"),
    "empty_like": "zeros",
    **dict.fromkeys(
        ("multiply", "square", "divide", "reciprocal", "absolute", "sqrt", "sign"),
        "complex numbers: each product rounded by itself, where NumPy's vector loops round "
        "a product and a sum together",
    ),
    **dict.fromkeys(
        (
            "sum",
            "mean",
            "matmul",
            "dot",
            "prod",
            "matvec",
            "vecmat",
            "vecdot",
            "std",
            "nansum",
            "nanmean",
            "trace",
            "vecdot",
            "tensordot",
            "inner",
            "einsum",
            "convolve",
            "correlate",
            *(
                f"linalg.{n}"
                for n in (
                    "norm",
                    "vector_norm",
                    "matrix_norm",
                    "matmul",
                    "tensordot",
                    "vecdot",
                    "trace",
                    "multi_dot",
                    "matrix_power",
                )
            ),
        ),
        "floats are summed in the documented order",
    ),
    "average": "floats are summed in the documented order; of weights whose sum is zero NaN or "
    "infinity, and of no elements no error, where NumPy raises",
    "argsort": "always stable",
    "histogram": "of known edges, without weights and density",
    "isscalar": "False of traced numbers",
    "searchsorted": "the array is compared with every value",
    "astype": "ui32 of floats that do not fit: as NumPy's scalar loops, its vector loops differ",
}
NOT_OFFERED = {**REFUSED, "isnat": "dates are no element type"}
# functions that do not compute: input and output, settings, and NumPy's own affairs
ASIDE = frozenset(
    [
        "asmatrix",
        "bmat",
        "base_repr",
        "binary_repr",
        "datetime_data",
        "format_float_positional",
        "format_float_scientific",
        "fromfile",
        "fromregex",
        "genfromtxt",
        "get_include",
        "get_printoptions",
        "getbufsize",
        "geterr",
        "geterrcall",
        "info",
        "load",
        "loadtxt",
        "nested_iters",
        "printoptions",
        "set_printoptions",
        "setbufsize",
        "seterr",
        "seterrcall",
        "show_config",
        "show_runtime",
        "test",
        "typename",
        "mintypecode",
        "require",
        "iterable",
        "row_stack",
    ]
)
# NumPy itself computes it, and its result is a constant of the program
KNOWN = "same, of what is known while compiling"
REASONS = (  # of functions of traced arrays that have no counterpart, by their names
    (r"linalg\.", "there is no such factorization"),
    (r"fft\.", "there are no Fourier transforms"),
    (r"unique|union1d|intersect1d|setdiff1d|setxor1d", "its result's size depends on the elements"),
    (r"busday|datetime|is_busday", "dates are no element type"),
    (r"array2string|array_repr|array_str|save", "it gives text or a file"),
    (r"poly|roots", "write the polynomial with operators"),
    (
        r"shares_memory|may_share_memory|min_scalar_type|einsum_path",
        "it says how NumPy stores or computes",
    ),
    (r"can_cast|common_type|result_type|is\w+obj", "use x.dtype"),
    (r"(un)?packbits", "use shifts and bitwise operators"),
    (r"\w+_indices_from", "use np.tril_indices(n) and the like, of x.shape"),
    (r"apply_\w+|piecewise", "use cvm.vmap, or np.where"),
    (
        r"insert|delete|block|resize|diagflat|unstack",
        "use np.concatenate, np.reshape and subscripts",
    ),
    (r"(nan)?(percentile|quantile)|nanmedian|(arg)?partition", "use np.sort and a subscript"),
    (r"cumulative_\w+|nancum\w+", "use np.cumsum or np.cumprod"),
    (r".*", "write it with operators"),
)


def of_numpy() -> dict[str, Any]:
    """The functions of np, np.linalg and np.fft that compute; ufuncs are not among them."""
    found = {}
    for prefix, room in (("", np), ("linalg.", np.linalg), ("fft.", np.fft)):
        for name in dir(room):
            f = getattr(room, name)
            if (
                callable(f)
                and not name.startswith("_")
                and not isinstance(f, (type, np.ufunc))
                and name not in ASIDE
            ):
                found[prefix + name] = f
    return found


def rows() -> list[tuple[str, str]]:
    """Each function with `same`, `within N ulp`, how it differs, or why it is refused."""
    found: dict[str, str] = {}
    for name in sorted(n for n in dir(np) if isinstance(getattr(np, n), np.ufunc)):
        ufunc = getattr(np, name).__name__
        row = UFUNCS.get(ALIASES.get(ufunc, ufunc))
        if ufunc in DIFFERS and (row or ufunc in FUNCTIONS):
            found[name] = f"differs: {DIFFERS[ufunc]}"
        elif row is not None:
            found[name] = f"within {row.ulps} ulp of the exact value" if row.ulps else "same"
        elif ufunc in RESULTS or ufunc in FUNCTIONS:
            found[name] = "same"
        else:
            found[name] = f"refused: {NOT_OFFERED.get(ufunc, 'not offered yet')}"
    for name in FUNCTIONS:
        found.setdefault(name, f"differs: {DIFFERS[name]}" if name in DIFFERS else "same")
    for name, reason in NOT_OFFERED.items():
        found.setdefault(name, f"refused: {reason}")
    for name, f in of_numpy().items():
        if not hasattr(f, "_implementation"):  # no array decides what it does
            found.setdefault(name, f"differs: {DIFFERS[name]}" if name in DIFFERS else KNOWN)
        elif f.__name__ in found:  # another name
            found.setdefault(name, found[f.__name__])
        else:
            reason = next(why for pattern, why in REASONS if re.match(pattern, name))
            found.setdefault(name, f"refused: {reason}")
    return sorted(found.items())


def table() -> str:
    lines = ["| NumPy | in a traced function |", "|---|---|"]
    return "\n".join([*lines, *(f"| `np.{name}` | {said} |" for name, said in rows()), ""])


def page(text: str) -> str:
    """The page with the table as it is now."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
