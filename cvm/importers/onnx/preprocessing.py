"""The operators of ONNX's domain `ai.onnx.ml` that prepare features and labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.tensor_types import F32, F64, I64, UI8
from cvm.importers.graph.elementwise import number, where
from cvm.importers.graph.indexing import gathered
from cvm.importers.graph.movement import joined, part, reshaped
from cvm.importers.graph.reductions import total
from cvm.importers.graph.rules import Known, Unsupported, known_size

from .elements import to_array
from .importer import At
from .rules import rule
from .scores import floats, labels_at, rows_of


def by_feature(at: At, values: np.ndarray, x: Node) -> Node:
    """Values of all features, or one of every feature, in x's type."""
    features = known_size(x.shape[-1], "a row of features") if len(values) != 1 else 1
    if len(values) != features:
        raise ValueError(f"expected a value for each of {features} features, got {len(values)}")
    row = values.astype(x.element.dtype)
    return at.node(row if len(values) != 1 else row.reshape(()))


@rule("ai.onnx.ml.Scaler")
def scaler(at: At, x: Node) -> Known:
    """The difference and the product round in f64 for a value of f64, else in f32."""
    wide = x if x.element is F64 else x.cast(F32)
    offset, scale = (by_feature(at, floats(at, name), wide) for name in ("offset", "scale"))
    return ((wide - offset) * scale).cast(F32)


@rule("ai.onnx.ml.Normalizer")
def normalizer(at: At, x: Node) -> Known:
    """A row whose norm is 0 stays as it is; MAX divides by the largest element."""
    x, norm, axis = x.cast(F32), at["norm"], x.rank - 1
    if norm not in NORMS:
        raise Unsupported(f"the norm {norm!r}")
    size = NORMS[norm](x, (axis,)).with_ones((axis,))
    return where(size.scalar("eq", 0.0), x, x / where(size.scalar("eq", 0.0), 1.0, size))


NORMS: dict[str, Any] = {
    "MAX": lambda x, over: x.reduce("max", over),
    "L1": lambda x, over: total(x.scalar("abs_"), over),
    "L2": lambda x, over: total(x * x, over).scalar("sqrt"),
}


@rule("ai.onnx.ml.Binarizer")
def binarizer(at: At, x: Node) -> Known:
    above = x.cast(F64).scalar("gt", float(np.float32(at["threshold"])))
    return above.cast(x.element)


@rule("ai.onnx.ml.Imputer")
def imputer(at: At, x: Node) -> Known:
    is_float = x.element.kind == "float"
    imputed = at["imputed_value_floats" if is_float else "imputed_value_int64s"]
    replaced = at["replaced_value_float" if is_float else "replaced_value_int64"]
    _ = at["imputed_value_floats"], at["imputed_value_int64s"]  # of the other type
    _ = at["replaced_value_float"], at["replaced_value_int64"]
    if not imputed:
        raise ValueError(f"expected values to impute in {x.element}")
    values = np.array(imputed, np.float32 if is_float else np.int64)
    if is_float and np.isnan(replaced):
        is_missing = x.scalar("isnan")
    else:
        is_missing = x.scalar("eq", number(x, replaced))
    return where(is_missing, by_feature(at, values, x), x)


@rule("ai.onnx.ml.ArrayFeatureExtractor")
def array_feature_extractor(at: At, x: Known, indices: Known) -> Known:
    """Elements along the last axis; a constant row of strings gives their indices."""
    if isinstance(indices, np.ndarray):
        places: Known = indices.reshape(-1)
    else:
        places = reshaped(at, indices, (-1,))
    if isinstance(x, np.ndarray) and x.dtype.kind == "U":
        return labels_at(at, x.reshape(-1), at.node(places).with_ones((0,)))
    y = gathered(at, x, places, len(x.shape) - 1)
    return y if y.rank > 1 else y.with_ones((0,))


@rule("ai.onnx.ml.FeatureVectorizer")
def feature_vectorizer(at: At, *xs: Node) -> Known:
    """Features beyond the stated number are left out, and missing ones are 0."""
    stated = at["inputdimensions"] or []
    if len(stated) != len(xs):
        raise ValueError(f"{len(xs)} inputs, and {len(stated)} numbers of their features")
    columns: list[Node] = []
    for x, n in zip(map(rows_of, xs), stated, strict=True):
        have = known_size(x.shape[1], "a row of features")
        row = part(at, x, 1, 0, n) if n < have else x
        columns.append(
            at.apply("builtin.pad", row, before=(0, 0), after=(0, n - have)) if n > have else row
        )
    return joined(at, columns, 1)


def places_among(at: At, x: Node, keys: np.ndarray) -> tuple[Node, Node]:
    """The place of each element among keys, the first of equal ones, and whether it is there."""
    last = x.with_ones((x.rank,))
    among = last.scalar("eq", at.node(keys.astype(x.element.dtype)))
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        among = among.scalar("or_", last.scalar("isnan").scalar("and_", at.node(np.isnan(keys))))
    place = at.apply("builtin.argmax", among.cast(UI8), axis=x.rank)
    return place, among.reduce("any", (x.rank,))


@rule("ai.onnx.ml.OneHotEncoder")
def one_hot_encoder(at: At, x: Node) -> Known:
    """Categories are numbers. Other values are an error of the call where `zeros` is 0."""
    if at["cats_strings"]:
        raise Unsupported("strings as categories")
    categories = np.array(at["cats_int64s"] or [], np.int64)
    if not categories.size:
        raise ValueError("expected categories in cats_int64s")
    numbers = x.scalar("trunc").cast(I64) if x.element.kind == "float" else x.cast(I64)
    if at["zeros"]:
        return numbers.with_ones((x.rank,)).scalar("eq", at.node(categories)).cast(F32)
    place, is_there = places_among(at, numbers, categories)
    beyond = number(place, len(categories))  # is no row of the matrix
    rows = np.eye(len(categories), dtype=np.float32)
    return at.apply("builtin.gather", rows, where(is_there, place, beyond), axes=(0,))


# the elements of an encoder's keys and values, by the end of the attribute's name
ELEMENTS: dict[str, Any] = {"int64s": np.int64, "floats": np.float32, "strings": np.str_}
# the attribute with the value of elements that are not keys, and its default, by the kind of the
# values
DEFAULTS: dict[str, tuple[str, object]] = {
    "i": ("default_int64", -1),
    "f": ("default_float", -0.0),
    "U": ("default_string", "_Unused"),
}


def encoder_array(at: At, side: str) -> np.ndarray:
    """The keys or the values of an encoder."""
    if (tensor := at[f"{side}_tensor"]) is not None:
        return to_array(tensor).reshape(-1)
    lists = [np.array(v, t) for end, t in ELEMENTS.items() if (v := at[f"{side}_{end}"])]
    if not lists:
        raise ValueError(f"it has no {side}")
    return lists[0]


def encoder_default(at: At, values: np.ndarray) -> np.ndarray:
    """The value of elements that are not keys, in an array."""
    tensor = at["default_tensor"]
    if tensor is not None and tensor.dims:
        return to_array(tensor).reshape(-1)[:1]
    stated = {name: at[name] for name, _ in DEFAULTS.values()}
    name, default = DEFAULTS[values.dtype.kind]
    value = stated[name] if name in at.protos else default
    return np.array([value], None if values.dtype.kind == "U" else values.dtype)


def encoded(at: At, x: Node, keys: np.ndarray, values: np.ndarray, default: np.ndarray) -> Node:
    """The value of each element's first key; keys that are strings are of labels."""
    if len(keys) != len(values):
        raise ValueError(f"{len(keys)} keys and {len(values)} values")
    table = np.concatenate([values, default])
    if (strings := at.labels_of(x)) is not None:
        places = {k: n for n, k in reversed([*enumerate(keys.tolist())])}
        index = gathered(at, np.array([places.get(s, len(keys)) for s in strings]), x, 0)
    elif keys.dtype.kind == "U":
        raise Unsupported("strings as keys")
    else:
        place, is_there = places_among(at, x, keys)
        index = where(is_there, place, number(place, len(keys)))
    if table.dtype.kind == "U":
        return labels_at(at, table, index)
    return at.apply("builtin.gather", table, index, axes=(0,), mode="clip")


@rule("ai.onnx.ml.LabelEncoder", since=2)
def label_encoder(at: At, x: Node) -> Known:
    """From numbers, or labels that the model computes, to either."""
    values = encoder_array(at, "values")
    return encoded(at, x, encoder_array(at, "keys"), values, encoder_default(at, values))


@rule("ai.onnx.ml.LabelEncoder", until=2)
def label_encoder_of_strings(at: At, x: Node) -> Known:
    """From the numbers of strings to labels, or from labels to numbers."""
    strings = np.array(at["classes_strings"] or [], np.str_)
    numbers = np.arange(len(strings))
    of_strings, of_numbers = np.array([at["default_string"]]), np.array([at["default_int64"]])
    if at.labels_of(x) is not None:
        return encoded(at, x, strings, numbers, of_numbers)
    return encoded(at, x, numbers, strings, of_strings)


@rule("ai.onnx.ml.ZipMap")
def zip_map(at: At, x: Node) -> Known:
    """The array of scores as it is, a column for each class."""
    _ = at["classlabels_int64s"], at["classlabels_strings"]
    return x
