"""Broken snippets and what to say about each.

The state in which the parser stops in a snippet, with the token it stops at, tells that the same has happened in a
program. A line at the margin is `code: message`; under it stand snippets, inside a function after `|`. `...` lets the
token where the parser stops be any other one. `{got}` is that token. The first snippet that fits wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from .nodes import Token

MISTAKES = """
parse.item: expected func, graph or module, got {got}
    %x ...
    foo @f()
parse.brace: there is no '{' that this '}' closes
    }
parse.item: a module is the whole program, but {got} follows it
    module {} func ...
parse.item: a module holds functions, got {got}
    module { %x ...
parse.name: the name of a function begins with @, got {got}
    func main()
    graph main {
    func %x
parse.head: expected '(' and the arguments after the name of a function, got {got}
    func @f { ...
parse.head: expected '{' and statements, got {got}
    graph @f foo ...
    func @f() -> tensor<f32> 1 ...
    func @f() -> (tensor<f32>) 1 ...
parse.head: expected '->' before the types of the results, got {got}
    func @f() tensor<f32>
    func @f() : f32
    func @f() (tensor
parse.head: expected '->' and types, or '{' and statements, got {got}
    func @f() 1 ...
parse.head: expected a type after '->', as in tensor<2x3xf32>, got {got}
    func @f() -> 1 ...

parse.argument: the name of an argument begins with %, got {got}
    func @f(x: f32
    func @f(@x
parse.argument: expected an argument, as in %x: tensor<2x3xf32>, got {got}
    func @f(1
    func @f(%x: tensor<f32>, ) ...
parse.argument: expected ':' and a type after the name of an argument, got {got}
    func @f(%x 1 ...
parse.argument: expected a type, as in %x: tensor<2x3xf32>, got {got}
    func @f(%x: 1 ...
    func @f(%x: f32
parse.argument: expected ',' or ')' after an argument, got {got}
    func @f(%x: tensor<f32> 1 ...
    func @f(%x: tensor<f32> {inplace} 1 ...

parse.statement: expected a statement, as in %y = cvm.relu %x, got {got}
    | foo ...
parse.statement: expected '=' before the operator, got {got}
    | %y cvm.relu %x
    | %y call @f()
    | %y const
parse.statement: expected ',' or '=' after a result, got {got}
    | %y foo ...
parse.statement: expected the name of a result after ',', got {got}
    | %x, 1 ...
parse.operator: an operator is written with its dialect, as in cvm.relu, got {got}
    | %y = relu %x
parse.constant: a constant is written const dense<...> : type, got {got}
    | %y = dense<1> : t
parse.call: a call is written call @f(%x), got {got}
    | %y = @f(%x)
parse.statement: expected an operator after '=', as in %y = cvm.relu %x, got {got}
    | %y = %x ...
parse.call: the name of a function begins with @, got {got}
    | %y = call f(%x)
    | call %f(%x)
parse.call: expected '(' and operands after the name of a function, got {got}
    | %y = call @f %x ...
parse.generic: expected '(' and operands after a quoted operator, got {got}
    | %y = "cvm.relu" %x ...

parse.operand: expected an operand after ',', got {got}
    | %y = cvm.f %x, ] ...
    | %y = "cvm.f"(%x, ] ...
parse.operand: operands stand without parentheses, as in cvm.relu %x
    | %y = cvm.relu(%x)
parse.infix: expressions with infix operators are not supported yet, got {got}
    | %y = dali.expr((1 + %x))
parse.attribute: attributes stand in braces after the operands, as in {axis = 1}, got {got}
    | %y = cvm.f %x, axis = 1
    | %y = cvm.f %x axis = 1
    | %y = cvm.f axis = 1
parse.operand: expected ',' before an operand, got {got}
    | %y = cvm.f %x 3
    | %y = cvm.f %x 1.5
    | %y = cvm.f 3 3
    | %y = cvm.f %x, 3 3
    | %y = cvm.f 3 1.5
    | %y = cvm.f %x, %x 3
    | %y = cvm.f %x, %x 1.5
parse.operand: expected ',' or ')' after an operand, got {got}
    | call @f(%x %y) ...
    | call @f(3 ] ...
parse.operand: expected an operand or ')', got {got}
    | call @f(] ...
parse.complex: a complex number is written (real, imaginary), got {got}
    | %y = cvm.f (1 2 ...
    | %y = cvm.f (1, ) ...
    | %y = cvm.f (1, 2, ...
parse.signature: a signature is written : (types) -> types, got {got}
    | %y = cvm.f %x : tensor<f32> ...
    | %y = cvm.f %x : foo
parse.signature: expected a type, got {got}
    | %y = cvm.f %x : (1 ...
    | %y = cvm.f %x : (tensor<f32>, 1 ...
    | %y = cvm.f %x : () -> 1 ...
parse.signature: expected ',' or ')' after a type, got {got}
    | %y = cvm.f %x : (tensor<f32> 1 ...
parse.signature: expected '->' and the types of the results, got {got}
    | %y = cvm.f %x : (tensor<f32>) 1 ...

parse.constant: a constant is written const dense<...> : type or const file("path", "name") : type, got {got}
    | %y = const 3 ...
parse.constant: a constant states its type, as in const dense<0> : tensor<2xi32>, got {got}
    | %y = const dense<1> ] ...
    | %y = const file("a") 1 ...
parse.constant: expected the type of a tensor, as in const dense<0> : tensor<2xi32>, got {got}
    | %y = const dense<1> : 1 ...
    | %y = const dense<1> : foo
    | %y = const file("a") : 1 ...
parse.constant: a file is named in quotes, as in file("weights.npz", "name"), got {got}
    | %y = const file 1 ...
    | %y = const file(1 ...
    | %y = const file("a", 1 ...
parse.constant: expected ',' and the name of an array, or ')', got {got}
    | %y = const file("a" 1 ...
parse.constant: expected ')' after the name of an array, got {got}
    | %y = const file("a", "b" 1 ...

parse.attribute: the name of an attribute is written without quotes, got {got}
    | %y = cvm.f %x {"a" = 1}
    | %y = cvm.f %x {a = 1, "b" = 1}
parse.attribute: expected the name of an attribute, got {got}
    | %y = cvm.f %x {1 ...
    | %y = cvm.f %x {a = 1, 1 ...
parse.attribute: an attribute is written name = value, got {got}
    | %y = cvm.f %x {a : 1
    | %y = cvm.f %x {a : b
    | %y = cvm.f %x {a 1
parse.attribute: the value of an attribute is constant, got {got}
    | %y = cvm.f %x {a = %x
parse.attribute: expected the value of an attribute after '=', got {got}
    | %y = cvm.f %x {a = } ...
parse.attribute: expected ',' or '}' after an attribute, got {got}
    | %y = cvm.f %x {a = 1 b ...
    | %y = cvm.f %x {a ] ...
parse.array: expected ',' or ']' after an element, got {got}
    | %y = cvm.f %x {a = [1 2 ...
    | %y = cvm.f %x {a = [1, 1 2 ...
parse.array: expected an element, got {got}
    | %y = cvm.f %x {a = [) ...
    | %y = cvm.f %x {a = [1, ) ...
parse.dictionary: an entry of a dictionary is written key = value, got {got}
    | %y = cvm.f %x {a = {0 : 1 ...
    | %y = cvm.f %x {a = {) ...
    | %y = cvm.f %x {a = {0 = 1, ) ...
parse.dictionary: expected ',' or '}' after an entry, got {got}
    | %y = cvm.f %x {a = {0 = 1 2 ...
"""


class Said(NamedTuple):
    """What to say about a mistake."""

    code: str
    message: str


Known = Mapping[tuple[Any, str | None], Said]


def snippets() -> Iterator[tuple[Said, str, bool]]:
    """What is said about each snippet, and whether any other token may stand where the parser stops."""
    said = Said("", "")
    for line in MISTAKES.splitlines():
        if line.startswith(" "):
            text = line.strip().removesuffix(" ...")
            yield said, f"func @f() {{ {text[2:]} }}" if text.startswith("| ") else text, line.endswith(" ...")
        elif line:
            said = Said(*line.split(": ", 1))


def by_state(stops_at: Callable[[str], tuple[Any, Token]]) -> Known:
    """What to say by the parser's state and the token it stops at, None standing for any."""
    known: dict[tuple[Any, str | None], Said] = {}
    for said, text, any_token in snippets():
        state, token = stops_at(text)
        known.setdefault((state, token.type), said)
        if any_token:
            known.setdefault((state, None), said)
    return known
