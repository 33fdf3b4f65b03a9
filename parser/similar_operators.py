"""Operators that an unknown name may mean: of the same name in other dialects, of a name that
contains it, and of the names that other libraries use.
"""

from ..dialect.spec.operator import OPERATORS

DIALECTS = ("cvm", "theano", "dali", "quant", "numpy", "builtin", "cog")  # in the order of mention
SHOWN = 3  # operators in a message, at most

# the words of NumPy, ONNX, PyTorch and StableHLO, where the dialects have others
MEANINGS = {
    "absolute": "abs",
    "average": "sum",
    "broadcast_in_dim": "expand_dims",
    "cast": "cvm_precision",
    "clip_by_value": "clamp",
    "concat": "concatenate",
    "conv": "conv2d",
    "convolution": "conv2d",
    "cumsum": "cumulative",
    "divide": "div",
    "dot": "dense",
    "dot_general": "dense",
    "einsum": "dense",
    "fully_connected": "dense",
    "gemm": "dense",
    "greater": "gt",
    "less": "lt",
    "linear": "dense",
    "matmul": "dense",
    "maximum": "max",
    "maxpool": "max_pool2d",
    "mean": "sum",
    "minimum": "min",
    "multiply": "mul",
    "neg": "negative",
    "permute": "transpose",
    "power": "pow",
    "reduce_max": "max",
    "reduce_mean": "sum",
    "reduce_sum": "sum",
    "remainder": "mod",
    "select": "where",
    "sort": "argsort",
    "subtract": "sub",
    "true_divide": "div",
    "unsqueeze": "expand_dims",
}


def similar_operators(word: str) -> str:
    """The end of a message: "; there is dali.acosh", or nothing where no operator is alike."""
    words = {word, MEANINGS.get(word, word)} - {*DIALECTS}
    found: list[tuple[int, bool, str]] = []
    for name in OPERATORS:
        dialect, _, last = name.partition(".")
        if dialect in DIALECTS and words & {last, *last.split("_")}:
            found.append((DIALECTS.index(dialect), last not in words, name))
    *names, last = [name for *_, name in sorted(found)][:SHOWN] or [""]
    if not names:
        return f"; there is {last}" if last else ""
    return f"; there are {', '.join(names)} and {last}"
