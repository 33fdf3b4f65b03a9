"""onnxruntime's operators of language models (domain com.microsoft): attention, rotary embeddings,
normalizations beside sums, and products by weights of few bits.

Each is made of the language's operators, in the steps of onnxruntime's documentation. Values have
the axes b (batch), n (heads), s (queries), t (keys) and h (a head).
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.sizes import Dim, Size, same_size
from cvm.dialect.types.tensor_types import F16, F32, I64
from cvm.importers.graph.contractions import contract, matmul
from cvm.importers.graph.elementwise import combine, gelu, number, where
from cvm.importers.graph.movement import counted_from, joined, part, reshaped
from cvm.importers.graph.reductions import mean, softmax_along
from cvm.importers.graph.rules import Array, Known, Unsupported, known_size

from .importer import At
from .reductions_and_normalization import normalized
from .rules import rule

LOWEST = -3e38  # the scores that are left out, which f32 and bf16 hold

# Normalization, and functions of elements


def given(at: At, name: str, default: Any) -> Any:
    """An attribute, of which ONNX has no schema that tells the default."""
    return default if (value := at[name]) is None else value


def by_root_mean_square(at: At, x: Node, scale: Node, axis: int, epsilon: float) -> list[Node]:
    """x over the root of its mean square, times a scale, and the inverse of the root."""
    over = tuple(range(axis, x.rank))
    wide = x.cast(F32)
    inverse = (mean(at, wide * wide, over).with_ones(over) + epsilon).scalar("sqrt").scalar("inv")
    return [combine("mul", (wide * inverse).cast(x.element), scale), inverse]


@rule("com.microsoft.SimplifiedLayerNormalization")
def simplified_layer_normalization(at: At, x: Node, scale: Node) -> Any:
    if given(at, "stash_type", 1) != 1:
        raise Unsupported("a mean of other floats than f32")
    axis = given(at, "axis", -1)
    return by_root_mean_square(at, x, scale, axis % x.rank, given(at, "epsilon", 1e-5))


@rule("com.microsoft.SkipLayerNormalization")
def skip_layer_normalization(
    at: At, x: Node, skip: Node, scale: Node, shift: Node | None = None, bias: Node | None = None
) -> Any:
    """The normalized sum, its mean, the inverse of its deviation, and the sum."""
    whole = skipped(x, skip, bias)
    y, center, deviation = normalized(at, whole, (x.rank - 1,), given(at, "epsilon", 1e-12))
    y = combine("mul", y, scale)
    shifted = y if shift is None else combine("add", y, shift)
    return [shifted, center, deviation.scalar("inv"), whole]


@rule("com.microsoft.SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(
    at: At, x: Node, skip: Node, scale: Node, bias: Node | None = None
) -> Any:
    """The normalized sum, zeros in place of a mean, the inverse of the root, and the sum."""
    whole = skipped(x, skip, bias)
    y, inverse = by_root_mean_square(at, whole, scale, x.rank - 1, given(at, "epsilon", 1e-12))
    return [y, number(inverse, 0).like(inverse), inverse, whole]


def skipped(x: Node, skip: Node, bias: Node | None) -> Node:
    whole = combine("add", x, skip)
    return whole if bias is None else combine("add", whole, bias)


@rule("com.microsoft.BiasGelu", "com.microsoft.FastGelu", "com.microsoft.Gelu")
def biased_gelu(at: At, x: Node, bias: Node | None = None) -> Known:
    return gelu(x if bias is None else combine("add", x, bias), at.op == "FastGelu")


@rule("com.microsoft.QuickGelu")
def quick_gelu(at: At, x: Node) -> Known:
    return x * (x * float(given(at, "alpha", 1.702))).scalar("sigmoid")


# Products


@rule("com.microsoft.FusedMatMul")
def fused_matmul(at: At, a: Node, b: Node) -> Known:
    if at["transBatchA"] or at["transBatchB"]:
        raise Unsupported("a transposed batch")
    a, b = (
        x.dimshuffle([*range(x.rank - 2), x.rank - 1, x.rank - 2]) if turned else x
        for x, turned in ((a, at["transA"]), (b, at["transB"]))
    )
    alpha = float(given(at, "alpha", 1.0))
    y = matmul(at, a, b)
    return y if alpha == 1 else y * alpha


@rule("com.microsoft.MatMulNBits")
def matmul_nbits(
    at: At,
    x: Node,
    w: Array,
    scales: Array,
    zero_points: Array | None = None,
    group_indices: Array | None = None,
    bias: Node | None = None,
) -> Known:
    """The weights are dequantized while importing: as many floats are kept. The product is of
    floats, for each accuracy_level.
    """
    _ = at["accuracy_level"]
    k, n, bits = (int(at[name]) for name in ("K", "N", "bits"))
    block = int(at["block_size"])
    blocks = -(-k // block)
    if bits not in (2, 4, 8):
        raise Unsupported(f"{bits} bits")
    if w.dtype != np.uint8 or w.size != n * blocks * block * bits // 8:
        raise ValueError(
            f"expected {n} x {blocks} blocks of {block * bits // 8} bytes of weights, got "
            f"{'x'.join(map(str, w.shape))} of {w.dtype}"
        )
    whole = unpacked(w.reshape(n, -1), bits).reshape(n, blocks, block)
    zeros = np.full((n, blocks), 1 << bits - 1, np.float32)
    if zero_points is not None and zero_points.dtype == np.uint8:
        zeros = unpacked(zero_points.reshape(n, -1), bits)[:, :blocks]
    elif zero_points is not None:
        zeros = zero_points.reshape(n, blocks)
    of_block = scales.astype(np.float32).reshape(n, blocks)
    zeros = zeros.astype(np.float32)
    if group_indices is None:
        numbers = (whole - zeros[..., None]) * of_block[..., None]
        numbers = numbers.reshape(n, -1)[:, :k]
    else:
        of = group_indices.reshape(-1)[:k].astype(np.int64)
        if of.size != k or of.min() < 0 or of.max() >= blocks:
            raise ValueError(f"expected {k} indices of {blocks} groups")
        numbers = (whole.reshape(n, -1)[:, :k] - zeros[:, of]) * of_block[:, of]
    rows = at.node(np.ascontiguousarray(numbers.T.astype(x.element.dtype)))
    y = matmul(at, x, rows)
    return y if bias is None else combine("add", y, bias)


def unpacked(packed: Array, bits: int) -> Array:
    """The numbers of rows of bytes, those of the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = packed[..., None] >> shifts & np.uint8((1 << bits) - 1)
    return parts.reshape(*packed.shape[:-1], -1).astype(np.float32)


# Rotary embeddings


@rule("com.microsoft.RotaryEmbedding")
def rotary_embedding(at: At, x: Node, positions: Node, cosines: Node, sines: Node) -> Known:
    if at["is_packed_batching"] or given(at, "scale", 1.0) != 1:
        raise Unsupported("a scale, or packed batches")
    heads, turned = given(at, "num_heads", 0), given(at, "rotary_embedding_dim", 0)
    half = known_size(cosines.shape[1], "a row of cosines")
    split = x
    if x.rank == 3:
        hidden = known_size(x.shape[2], "a row")
        count = heads if turned and heads else hidden // (2 * half)
        split = in_heads(at, x, count)
    at_positions = positions
    if positions.rank == 1 or positions.shape == (1,):  # the first position of each row
        first = positions.dimshuffle(["x", 0] if positions.rank else ["x", "x"])
        at_positions = first + counted_from(at, 0, split.shape[2]).with_ones((0,))
    y = rotated(at, split, at_positions, cosines, sines, bool(at["interleaved"]))
    return y if x.rank == 4 else in_rows(at, y)


def rotated(
    at: At, x: Node, positions: Node, cosines: Node, sines: Node, interleaved: bool
) -> Node:
    """Pairs of elements of heads (b n s h) turned by the angles of positions (b s)."""
    half = known_size(cosines.shape[1], "a row of cosines")
    c, s = (
        at.apply("builtin.gather", table, positions.cast(I64), axes=(0,)).with_ones((1,))
        for table in (cosines, sines)
    )
    last = x.rank - 1
    head = part(at, x, last, 0, 2 * half)
    if interleaved:
        pairs = reshaped(at, head, (*x.shape[:-1], half, 2))
        a, b = (part(at, pairs, last + 1, k, k + 1).dimshuffle([*range(last + 1)]) for k in (0, 1))
    else:
        a, b = part(at, head, last, 0, half), part(at, head, last, half, 2 * half)
    turned = [
        (a * c - b * s).cast(x.element),
        (b * c + a * s).cast(x.element),
    ]
    if interleaved:
        wide = joined(at, [t.with_ones((last + 1,)) for t in turned], last + 1)
        turned = [reshaped(at, wide, (*x.shape[:-1], 2 * half))]
    whole = known_size(x.shape[last], "a head")
    rest = [] if whole == 2 * half else [part(at, x, last, 2 * half, whole)]
    return joined(at, [*turned, *rest], last)


# Attention


def in_heads(at: At, x: Node, heads: int) -> Node:
    """Rows (b s d) as heads (b n s h)."""
    hidden = known_size(x.shape[2], "a row")
    if not heads or hidden % heads:
        raise ValueError(f"rows of {hidden} in {heads} heads")
    split = reshaped(at, x, (x.shape[0], x.shape[1], heads, hidden // heads))
    return split.dimshuffle((0, 2, 1, 3))


def in_rows(at: At, y: Node) -> Node:
    """Heads (b n s h) as rows (b s d)."""
    b, n, s, h = y.shape
    width = known_size(n, "heads") * known_size(h, "a head")
    return reshaped(at, y.dimshuffle((0, 2, 1, 3)), (b, s, width))


def attention(
    at: At,
    q: Node,
    k: Node,
    v: Node,
    scale: float,
    added: Node | None = None,
    kept: Node | None = None,
    cap: float = 0.0,
) -> Node:
    """Softmax of scores (b n s t), times the values; each head of keys is for a group of heads of
    queries. Scores are capped, added to, and left out where they are not kept, in this order.
    """
    (b, n, s, h), groups = q.shape, known_size(k.shape[1], "heads")
    group = known_size(n, "heads") // groups
    split = reshaped(at, q, (b, groups, group, s, h))
    scores = contract(split, k, "bngsh", "bnth", "bngst") * scale
    scores = reshaped(at, scores, (b, n, s, k.shape[2]))
    if cap:
        scores = (scores * (1 / cap)).scalar("tanh") * cap
    if added is not None:
        scores = combine("add", scores, added)
    if kept is not None:
        scores = where(kept, scores, -65504.0 if q.element is F16 else LOWEST)
    shares = reshaped(at, softmax_along(scores, 3), (b, groups, group, s, k.shape[2]))
    y = contract(shares, v, "bngst", "bnth", "bngsh")
    return reshaped(at, y, (b, n, s, v.shape[3]))


@rule("com.microsoft.MultiHeadAttention")
def multi_head_attention(
    at: At,
    query: Node,
    key: Node | None = None,
    value: Node | None = None,
    bias: Node | None = None,
    padding: Node | None = None,
    added: Node | None = None,
    past_key: Node | None = None,
    past_value: Node | None = None,
) -> Any:
    """Queries, keys and values in tensors of their own; keys may be in heads."""
    heads = int(at["num_heads"])
    if key is None or value is None or query.rank != 3:
        raise Unsupported("queries, keys and values in one tensor")
    if bias is not None:
        width = known_size(query.shape[2], "a row")
        pieces = [(0, width), (width, 2 * width), (2 * width, known_size(bias.shape[0], "a bias"))]
        q, k, v = (part(at, bias, 0, *piece) for piece in pieces)
        query = combine("add", query, q)
        key = key if key.rank == 4 else combine("add", key, k)
        value = value if value.rank == 4 else combine("add", value, v)
    q, k, v = (x if x.rank == 4 else in_heads(at, x, heads) for x in (query, key, value))
    if past_key is not None and past_value is not None:
        k, v = joined(at, [past_key, k], 2), joined(at, [past_value, v], 2)
    if padding is not None:
        masked = masked_keys(at, padding, k, float(given(at, "mask_filter_value", -10000.0)))
        added = masked if added is None else combine("add", added, masked)
    kept = None
    if at["unidirectional"]:
        first = counted_from(at, 0, k.shape[2]).with_ones((0,))
        last = counted_from(at, 0, q.shape[2]).with_ones((1,))
        past = 0 if past_key is None else past_key.shape[2]
        kept = first.scalar("le", last + at.node(np.array(past, object)))
    y = attention(at, q, k, v, scale_of(at, q), added, kept)
    return [in_rows(at, y), k, v]


def masked_keys(at: At, padding: Node, k: Node, filter_: float) -> Node:
    """The addend of scores (b 1 s t): the filter where keys are padding."""
    if padding.rank == 1:
        keys = counted_from(at, 0, k.shape[2]).with_ones((0,))
        kept = keys.scalar("lt", padding.cast(I64).with_ones((1,)))
        return where(kept, number(k, 0.0), filter_).with_ones((1, 2))
    kept = padding.scalar("neq", 0)
    axes = (1, 2) if padding.rank == 2 else (1,)
    return where(kept, number(k, 0.0), filter_).with_ones(axes)


def scale_of(at: At, q: Node) -> float:
    """The factor of scores: by default one over the root of a head's size."""
    return float(at["scale"] or 1 / sqrt(known_size(q.shape[3], "a head")))


@rule("com.microsoft.GroupQueryAttention")
def group_query_attention(
    at: At,
    query: Node,
    key: Node | None,
    value: Node | None,
    past_key: Node | None,
    past_value: Node | None,
    last_keys: Node,
    total_length: Known,
    cosines: Node | None = None,
    sines: Node | None = None,
    positions: Node | None = None,
    added: Node | None = None,
) -> Any:
    """Each row of a batch has as many keys as its entry of seqlens_k, plus one; a present has
    total_sequence_length places.
    """
    heads, groups = int(at["num_heads"]), int(at["kv_num_heads"])
    if at["smooth_softmax"] or at["k_quant_type"] not in (None, "NONE"):
        raise Unsupported("a smooth softmax, or a quantized cache")
    if at["v_quant_type"] not in (None, "NONE") or at["qk_output"]:
        raise Unsupported("a quantized cache, or scores as an output")
    if key is None or value is None:
        width = known_size(query.shape[2], "a row")
        h = width // (heads + 2 * groups)
        ends = (0, heads * h, (heads + groups) * h, width)
        query, key, value = (part(at, query, 2, ends[n], ends[n + 1]) for n in range(3))
    q, k, v = in_heads(at, query, heads), in_heads(at, key, groups), in_heads(at, value, groups)
    count = counted_from(at, 0, q.shape[2])
    # keys of each row of the batch (b 1), those before the new ones, and the places of queries
    keys = reshaped(at, last_keys.cast(I64), (q.shape[0],)).with_ones((1,)) + 1
    before = keys - at.node(np.array(q.shape[2], object))
    places = before + count.with_ones((0,))
    if at["do_rotary"]:
        if cosines is None or sines is None:
            raise ValueError("do_rotary without tables of cosines and sines")
        turns = places.scalar("maximum", 0) if positions is None else positions.cast(I64)
        turned = bool(at["rotary_interleaved"])
        q, k = (rotated(at, x, turns, cosines, sines, turned) for x in (q, k))
    else:
        _ = at["rotary_interleaved"]
    if past_key is not None and past_value is not None:
        total = present_size(past_key.shape[2], total_length)
        k, v = (
            present(at, past, new, before, total) for past, new in ((past_key, k), (past_value, v))
        )
    at_key = counted_from(at, 0, k.shape[2]).with_ones((0, 1))
    at_query = places.with_ones((2,))
    kept = at_key.scalar("le", at_query)
    if (window := given(at, "local_window_size", -1)) > 0:
        kept = kept.scalar("and_", at_key.scalar("gt", at_query - int(window)))
    cap = float(given(at, "softcap", 0.0))
    y = attention(at, q, k, v, scale_of(at, q), added, kept.with_ones((1,)), cap)
    return [in_rows(at, y), k, v]


def present_size(past: Dim, total: Known) -> Dim:
    """The places of a cache after a step: total_sequence_length, or those that it had if these are
    more, and known.
    """
    if not isinstance(total, np.ndarray):
        raise Unsupported("a total_sequence_length that depends on data", total)
    whole = total.reshape(-1)[0]
    if isinstance(whole, Size):
        return whole
    return max(past, int(whole)) if isinstance(past, int) else int(whole)


def present(at: At, past: Node, new: Node, before: Node, total: Dim) -> Node:
    """The keys or values (b n t h): those of a past up to a place of each row (b 1), then the new
    ones, and zeros.
    """
    whole = new if same_size(past.shape[2], 0) else joined(at, [past, new], 2)
    places = counted_from(at, 0, total).with_ones((0,))  # 1 t
    start = at.node(np.array(past.shape[2], object))
    from_past = places.scalar("lt", before)
    index = where(from_past, places, places - before + start)
    # beyond the keys of a row nothing is read by its queries
    row = at.apply("builtin.iota_like", index, axis=0)
    taken = at.apply(
        "builtin.gather", whole.dimshuffle((0, 2, 1, 3)), row, index, axes=(0, 1), mode="clip"
    )
    return taken.dimshuffle((0, 2, 1, 3))
