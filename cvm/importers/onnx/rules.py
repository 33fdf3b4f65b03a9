"""The table of ONNX's operators: for each, and each range of opsets, the function that makes our
operations of a node.

    @rule("Softmax", since=13)
    def softmax(at: At, x: Node) -> Known: ...

Parameters are as in `graph/rules.py`. `at` gives the node's attributes, with the defaults of the
schema, and the program so far. A rule's docstring says what it does not take; docs/onnx.md is made
of this table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cvm.importers.graph.rules import F, Function, ImportRule, parameters

LATEST = 10**6


@dataclass(frozen=True)
class OpsetRule(ImportRule):
    """The import of nodes of one operator, in the opsets from `since` to below `until`."""

    since: int = 1
    until: int = LATEST
    symbolic: Callable[..., object] | None = None  # the same on arrays of sizes


RULES: dict[str, list[OpsetRule]] = {}


def rule(
    *names: str, since: int = 1, until: int = LATEST, symbolic: Function | None = None
) -> Callable[[F], F]:
    """Enters a function into the table. `symbolic` computes the node on arrays that may hold
    sizes.
    """

    def enter(function: F) -> F:
        for name in names:
            RULES.setdefault(name, []).append(
                OpsetRule(
                    name,
                    function,
                    parameters(function),
                    since=since,
                    until=until,
                    symbolic=symbolic,
                )
            )
        return function

    return enter


def find_rule(op: str, opset: int) -> OpsetRule | None:
    return next((r for r in RULES.get(op, ()) if r.since <= opset < r.until), None)


# why an operator has no rule, where there is more to say
REFUSED: dict[str, str] = {
    "NonMaxSuppression": "how much it gives depends on the data, "
    "and so does the shape of its output",
    **dict.fromkeys(
        ("StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch", "TfIdfVectorizer"),
        "the language has no strings",
    ),
    **dict.fromkeys(
        (
            "Bernoulli",
            "Multinomial",
            "RandomNormal",
            "RandomNormalLike",
            "RandomUniform",
            "RandomUniformLike",
        ),
        "it draws random numbers",
    ),
    **dict.fromkeys(
        ("Optional", "OptionalGetElement", "OptionalHasElement"),
        "the language has no optional values",
    ),
    "ImageDecoder": "it reads files of images",
    **dict.fromkeys(("CastMap", "DictVectorizer"), "the language has no maps"),
    "CategoryMapper": "the language has no strings",
}
