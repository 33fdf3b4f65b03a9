"""Syntax errors by example: broken snippets, each with its message.

The state in which the parser stops in a snippet, with the token it stops at, tells that the same
has happened in a program. A line at the margin is `code: message`; under it stand snippets, inside
a function after `|`. `...` lets the token where the parser stops be any other one, what is in «»
may stand there not at all, once or twice, and of ‹a¦b› either does. `{got}` is the token. The first
snippet that fits wins.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

from .syntax_tree import Token

MISTAKES = """
parse.item: expected func, graph, rewrite or module, got {got}
    %x ...
parse.brace: there is no '{' that this '}' closes
    ‹¦func @f() { return }¦module { }› }
parse.item: a module is the whole program, but {got} follows it
    module {} func ...
parse.item: expected func, graph, rewrite or the end of the text, got {got}
    func @f() { return } foo ...
parse.head: expected '{' after module and its name, got {got}
    module «@m » 1 ...
parse.item: a module holds functions, got {got}
    module { %x ...
parse.name: the name of a rewrite begins with @, got {got}
    rewrite main(
parse.name: the name of a function begins with @, got {got}
    ‹func main()¦func %x¦graph main {›
parse.head: expected '(' and the arguments after the name of a function, got {got}
    func @f { ...
parse.head: a graph has no arguments: an input is written %x = cog.sensor "x" : type, got {got}
    graph @f (
parse.head: several types of results stand in parentheses, got {got}
    func @f() -> tensor<f32>, tensor<f32>
parse.head: expected '{' and statements, got {got}
    ‹graph @f¦func @f() -> tensor<f32>¦func @f() -> (tensor<f32>)› 1 ...
parse.head: expected '->' before the types of the results, got {got}
    func @f() ‹tensor<f32>¦: f32¦(tensor›
parse.head: expected '->' and types, or '{' and statements, got {got}
    func @f() 1 ...
parse.head: expected a type after '->', as in tensor<2x3xf32>, got {got}
    func @f() -> 1 ...

parse.head: expected '=>' and the program that may stand for the first one, got {got}
    rewrite @f() { return } ...
parse.head: expected '{' and the program that may stand for the first one, got {got}
    rewrite @f() { return } => ...
parse.head: expected '{' and the program that is replaced, got {got}
    rewrite @f() 1 ...
parse.head: expected '(' and the arguments after the name of a rewrite, got {got}
    rewrite @f { ...

parse.argument: the name of an argument begins with %, got {got}
    func @f(«%x: tensor<f32>, »‹x: f32¦@x›
parse.argument: expected ':' and a type after the name of an argument, got '='
    func @f(«%x: tensor<f32>, »%x = 1
parse.argument: expected an argument, as in %x: tensor<2x3xf32>, got {got}
    func @f(1 ...
    func @f(%x: tensor<f32>, «%x: tensor<f32>, ») ...
parse.argument: expected ':' and a type after the name of an argument, got {got}
    func @f(%x 1 ...
parse.argument: expected a type, as in %x: tensor<2x3xf32>, got {got}
    func @f(%x: 1 ...
    func @f(%x: f32
parse.argument: the sizes of a type stand in < and >, as in tensor<2x3xf32>, got {got}
    func @f(«%x: tensor<f32>, »%x: tensor [
parse.argument: expected ',' or ')' after an argument, got {got}
    func @f(«%x: tensor<f32>, »%x: tensor<f32>‹¦ {inplace}› 1 ...

parse.statement: expected a statement, as in %y = cvm.relu %x, got {got}
    | foo ...
parse.statement: expected '=' before the operator, got {got}
    | %y ‹cvm.relu %x¦call @f()¦const›
parse.statement: expected ',' or '=' after a result, got {got}
    | %y foo ...
parse.statement: expected the name of a result after ',', got {got}
    | %x, 1 ...
parse.operator: an operator is written with its dialect, as in cvm.relu, got {got}
    | %y = relu %x
parse.type: the type of a field is written !cog.field<[4], f32>, got {got}
    | %n = ‹cog.field "n" init dense<0>¦cog.sensor "n"› : cog
parse.statement: the name of a field stands in quotes, as in cog.field "n" init dense<0> : type
    | %n = cog.field n init
parse.call: a call is written call @f(%x), got {got}
    | %y = @f(%x)
parse.statement: expected an operator after '=', as in %y = cvm.relu %x, got {got}
    | %y = %x ...
parse.call: the name of a function begins with @, got {got}
    | call ‹f¦%f›(%x)
parse.call: expected '(' and operands after the name of a function, got {got}
    | %y = call @f %x ...
parse.generic: expected '(' and operands after a quoted operator, got {got}
    | %y = "cvm.relu" %x ...

parse.region: a function ends with return, and only a region with yield, got {got}
    | yield
parse.region: expected a statement or the region's yield, got {got}
    | b.w %x {« %y = b.f %x» %y = b.f‹ %x¦ 1¦ %x {a = 1}¦ %x : () -> tensor<f32>› }
parse.region: a region ends with yield, and only a function with return, got {got}
    | b.w %x { %y = b.f %x return
    | b.w %x { %y = b.f %x %y = b.f %x return
parse.region: a region ends with its yield, got {got}
    | b.w %x { yield %x ‹%y¦%y = b.f %x¦return› ...
parse.region: expected '{' before the statements of a region, got {got}
    | b.w %x ‹(%y)¦{ yield } else› 1 ...
parse.region: expected the name of a value that enters the region, as in (%x, %y) {, got {got}
    | b.w %x (‹«%y, »¦%y, › 1 ...
parse.region: expected ',' or ')' after a value that enters the region, got {got}
    | b.w %x («%y, »%y‹¦: tensor<f32>› 1 ...

parse.operand: expected an operand after ',', got {got}
    | %y = ‹cvm.f¦"cvm.f"(› %x, «%x, »] ...
parse.operand: there is no '(' that this ')' closes
    | %y = cvm.f «%x, »‹3¦%x› )
parse.operand: operands stand without parentheses, as in cvm.relu %x
    | %y = cvm.relu(%x)
parse.infix: comparisons do not chain, got {got}
    | %y = dali.expr(%x < %x <
parse.infix: expected an operator or ')' after an operand, got {got}
    | %y = dali.expr(‹%x¦(%x¦%x * %x¦%x < %x¦1¦1.5¦x› ] ...
parse.infix: expected a value, a number or a function after an operator, got {got}
    | %y = dali.expr(%x ‹+¦*¦**¦<¦<<¦&¦^¦|¦+ -› ] ...
parse.infix: values are compared by ==, not by =, after {got}
    | %y = dali.expr(%x = 1
parse.infix: expected an expression, got {got}
    | %y = dali.expr(‹¦(¦f(¦f(%x,› ] ...
parse.attribute: attributes stand in braces after the operands, as in {axis = 1}, got {got}
    | %y = cvm.f «%x, »‹axis = 1¦%x axis = 1¦%x [¦%x <›
parse.operand: expected ',' before an operand, got {got}
    | %y = cvm.f «%x, »‹%x¦3› ‹3¦1.5›
parse.operand: expected ',' or ')' after an operand, got {got}
    | call @f(«%x, »‹%x %y¦3 ]›) ...
parse.operand: expected an operand or ')', got {got}
    | call @f(] ...
parse.complex: a complex number is written (real, imaginary), got {got}
    | %y = cvm.f (1‹ 2¦, )¦, 2,› ...
parse.signature: a signature is written : (types) -> types, got {got}
    | %y = cvm.f %x : tensor<f32> ...
    | %y = cvm.f %x ‹: foo¦-> tensor<f32>›
parse.statement: a return states no types: those of the results follow the arguments, got {got}
    | return %x : tensor<f32>
parse.signature: expected a type, or '[' before the elements of an array, got {got}
    | %y = cvm.f %x : (1
parse.signature: expected a type, got {got}
    | %y = cvm.f %x : (tensor<f32>, «tensor<f32>, »1 ...
    | %y = cvm.f %x : (‹%x¦) -> 1› ...
parse.signature: expected ',' or ')' after a type, got {got}
    | %y = cvm.f %x : ‹¦() -> ›(«tensor<f32>, »tensor<f32> 1 ...
parse.signature: expected '->' and the types of the results, got {got}
    | %y = cvm.f %x : (tensor<f32>) 1 ...

parse.constant: a constant is written const dense<...> : type or \
const file("path", "name") : type, got {got}
    | %y = const 3 ...
    | %y = dense<1> : t
parse.constant: a constant states its type, as in const dense<0> : tensor<2xi32>, got {got}
    | %y = const ‹dense<1>¦file("a")› ] ...
parse.constant: expected the type of a tensor, as in const dense<0> : tensor<2xi32>, got {got}
    | %y = const ‹dense<1>¦file("a")› : 1 ...
    | %y = const dense<1> : foo
parse.constant: a file is named in quotes, as in file("weights.npz", "name"), got {got}
    | %y = const file‹¦(¦("a",› 1 ...
parse.constant: expected ',' and the name of an array, or ')', got {got}
    | %y = const file("a" 1 ...
parse.constant: expected ')' after the name of an array, got {got}
    | %y = const file("a", "b" 1 ...

parse.attribute: the name of an attribute is written without quotes, got {got}
    | %y = cvm.f %x {«a = 1, »"b" = 1}
parse.attribute: expected the name of an attribute, got {got}
    | %y = cvm.f %x {«a = 1, »1 ...
parse.attribute: an attribute is written name = value, got {got}
    | %y = cvm.f %x {a ‹[1¦{¦"b"¦: 1¦: b¦1›
parse.attribute: the value of an attribute is constant, got {got}
    | %y = cvm.f %x {a = %x
parse.attribute: expected the value of an attribute after '=', got {got}
    | %y = cvm.f %x {a = } ...
parse.attribute: expected ',' or '}' after an attribute, got {got}
    | %y = cvm.f %x {«a = 1, »a‹ = 1¦› ] ...
parse.array: expected ',' or ']' after an element, got {got}
    | %y = cvm.f %x {a = [«1, »1 2 ...
parse.array: expected an element, got {got}
    | %y = cvm.f %x {a = [«1, ») ...
parse.dictionary: an entry of a dictionary is written key = value, got {got}
    | %y = cvm.f %x {a = {‹0 : 1¦)¦0 = 1, )¦0 = 1, 0 = 1, )› ...
parse.dictionary: expected ',' or '}' after an entry, got {got}
    | %y = cvm.f %x {a = {«0 = 1, »0 = 1 2 ...
"""


class Said(NamedTuple):
    """A message for a syntax error."""

    code: str
    message: str


Known = Mapping[tuple[Any, str | None], Said]


def snippets() -> Iterator[tuple[Said, str, bool]]:
    """Each snippet's message, and whether any other token may stand where the parser stops."""
    said = Said("", "")
    for line in MISTAKES.splitlines():
        if line.startswith(" "):
            text = line.strip().removesuffix(" ...")
            text = f"func @f() {{ {text[2:]} }}" if text.startswith("| ") else text
            parts = re.split("[‹›]", re.sub("«(.*)»", r"‹¦\1¦\1\1›", text))
            for chosen in product(*(part.split("¦") for part in parts)):
                yield said, "".join(chosen), line.endswith(" ...")
        elif line:
            said = Said(*line.split(": ", 1))


def by_state(stops_at: Callable[[str], tuple[object, Token]]) -> Known:
    """Messages by the parser's state and the token it stops at; None stands for any token."""
    known = {}
    for said, text, any_token in snippets():
        state, token = stops_at(text)
        known.setdefault((state, token.type), said)
        if any_token:
            known.setdefault((state, None), said)
    return known
