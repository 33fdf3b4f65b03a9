"""Ufuncs that compute what a scalar operation of Theano computes, once operands have the loop's
element type.
"""

from ..theano.scalar_op import SCALAR_OPS
from .ufunc_table import Formula, row

_SAME = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "negative": "neg",
    "positive": "identity",
    "square": "sqr",
    "absolute": "abs_",
    "sqrt": "sqrt",
    "conjugate": "conj",
    "divide": "true_div",
    "equal": "eq",
    "not_equal": "neq",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "bitwise_and": "and_",
    "bitwise_or": "or_",
    "bitwise_xor": "xor",
    "invert": "invert",
    "maximum": "maximum",
    "minimum": "minimum",
    "isnan": "isnan",
    "isinf": "isinf",
}
_TRANSCENDENTAL = {
    **{
        n: n
        for n in (
            "exp",
            "exp2",
            "expm1",
            "log",
            "log2",
            "log10",
            "log1p",
            "sin",
            "cos",
            "tan",
            "sinh",
            "cosh",
            "tanh",
        )
    },
    **{n: n for n in ("arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh", "arctan2")},
}


def _formula(theano: str) -> Formula:
    op = SCALAR_OPS[theano]
    return lambda *operands: op.expression(operands, op.rule.result(*(o.type for o in operands)))


for _numpy, _theano in {**_SAME, **_TRANSCENDENTAL}.items():
    row(
        _numpy,
        _formula(_theano),
        takes_complex=SCALAR_OPS[_theano].on_complex is not None,
        gradient=_theano,
        ulps=2 if _numpy in _TRANSCENDENTAL else 0,
    )
