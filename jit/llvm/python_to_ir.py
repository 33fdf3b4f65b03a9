"""Compile functions in a subset of Python to LLVM IR: the language of the runtime's own machine
code.

    @export
    def find(numbers: ptr, count: i64, wanted: i64) -> i64:
        for k in range(count):
            if i64[numbers + 8 * k] == wanted:
                return k
        return -1

Types are those of IR. `i64[p]` is the memory at a pointer, to read and to write; a pointer plus an
integer is the pointer so many bytes further on. A variable has the type of its first value, a
number that of the other operand. Integers are compared with signs, divided and shifted without.
`and` and `or` stop early. Names that are no variables are globals. The expression `ir(type, "text
{}", x)` is an instruction with operands, a string alone is IR, and `...` the body of a
declaration.
"""

import ast
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

_BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "udiv",
    ast.LShift: "shl",
    ast.RShift: "lshr",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.Eq: "icmp eq",
    ast.NotEq: "icmp ne",
    ast.Lt: "icmp slt",
    ast.LtE: "icmp sle",
    ast.Gt: "icmp sgt",
    ast.GtE: "icmp sge",
}


class _Value(NamedTuple):
    text: str
    type: str


def ir_text(source: str) -> str:
    """The IR of functions and of the strings between them, in their order."""
    parts: list[Any] = ast.parse(source).body
    functions = {f.name: f for f in parts if isinstance(f, ast.FunctionDef)}
    return "\n".join(
        [
            _Function(p, functions).text if isinstance(p, ast.FunctionDef) else p.value.value
            for p in parts
        ]
    )


class _Function:
    """A function being compiled. Variables lie in memory, which LLVM turns into registers."""

    def __init__(self, f: Any, functions: dict[str, Any]) -> None:
        self.functions = functions
        self.result = f.returns.id
        self.variables: dict[str, str] = {}  # their types
        self.entry: list[str] = []
        self.lines: list[str] = []
        self.names = 0
        self.is_open = True  # whether the current block has no end yet
        self.reached: set[str] = set()  # blocks that others go on with
        self.loops: list[tuple[str, str]] = []  # where `continue` and `break` go
        parameters = ", ".join(f"{a.annotation.id} %{a.arg}" for a in f.args.args)
        head = f"{self.result} @{f.name}({parameters})"
        if ast.unparse(f.body) == "...":
            self.text = f"declare {head}"
            return
        for a in f.args.args:
            self.assign(a.arg, _Value(f"%{a.arg}", a.annotation.id))
        self.block(f.body)
        self.end("ret void" if self.result == "void" else "unreachable")
        marks = [d.id for d in f.decorator_list]
        linkage, attributes = (
            ("", "") if "export" in marks else ("internal ", "".join(f"{m} " for m in marks))
        )
        body = "\n  ".join(["entry:", *self.entry, *self.lines])
        self.text = f"define {linkage}{head} {attributes}nounwind {{\n{body}\n}}\n"

    # blocks

    def labels(self, count: int) -> list[str]:
        self.names += 1
        return [f"b{self.names}.{n}" for n in range(count)]

    def add(self, type: str, text: str) -> _Value:
        self.names += type != "void"
        self.lines += [text if type == "void" else f"%v{self.names} = {text}"] * self.is_open
        return _Value(f"%v{self.names}", type)

    def end(self, text: str, *labels: str) -> None:
        """Ends the current block, if it has no end yet."""
        if self.is_open:
            self.lines.append(text)
            self.reached.update(labels)
        self.is_open = False

    def go(self, label: str) -> None:
        self.end(f"br label %{label}", label)

    def start(self, label: str) -> None:
        """Begins a block; what nothing leads to is left out."""
        self.go(label)
        if label in self.reached:
            self.lines.append(f"{label}:")
            self.is_open = True

    def branch(self, test: ast.expr, yes: str, no: str) -> None:
        """Ends the block at one of two others."""
        match test:
            case ast.BoolOp(operator, [*values, last]):
                for value in values:
                    (further,) = self.labels(1)
                    self.branch(
                        value, *((further, no) if isinstance(operator, ast.And) else (yes, further))
                    )
                    self.start(further)
                self.branch(last, yes, no)
            case ast.UnaryOp(ast.Not(), value):
                self.branch(value, no, yes)
            case ast.Constant(True):
                self.go(yes)
            case _:
                self.end(f"br i1 {self.value(test).text}, label %{yes}, label %{no}", yes, no)

    # statements

    def block(self, body: Iterable[Any]) -> None:
        for s in body:
            self.statement(s)

    def statement(self, s: ast.stmt) -> None:
        match s:
            case ast.Assign([ast.Name(name)], value):
                self.assign(name, self.value(value, self.variables.get(name, "i64")))
            case ast.Assign([ast.Subscript(ast.Name(type), place)], value):
                pointer = self.value(place).text
                self.add("void", f"store {type} {self.value(value, type).text}, ptr {pointer}")
            case ast.If(test, then, otherwise):
                yes, no, after = self.labels(3)
                self.branch(test, yes, no)
                for label, body in ((yes, then), (no, otherwise)):
                    self.start(label)
                    self.block(body)
                    self.go(after)
                self.start(after)
            case ast.While(test, body):
                self.loop(test, body, ())
            case ast.For(ast.Name(k), ast.Call(_, [count]), body):
                self.assign(k, _Value("0", "i64"))
                later = ast.Assign(
                    [ast.Name(k)], ast.BinOp(ast.Name(k), ast.Add(), ast.Constant(1))
                )
                self.loop(ast.Compare(ast.Name(k), [ast.Lt()], [count]), body, (later,))
            case ast.Return(value):
                self.end(
                    "ret void"
                    if value is None
                    else f"ret {self.result} {self.value(value, self.result).text}"
                )
            case ast.Continue() | ast.Break():
                self.go(self.loops[-1][isinstance(s, ast.Break)])
            case ast.Expr(ast.Constant(str(text))):
                self.lines.append(text)
            case ast.Expr(value):
                self.value(value)

    def assign(self, name: str, value: _Value) -> None:
        if name not in self.variables:
            self.variables[name] = value.type
            self.entry.append(f"%{name}.at = alloca {value.type}")
        self.add("void", f"store {value.type} {value.text}, ptr %{name}.at")

    def loop(self, test: ast.expr, body: Iterable[ast.stmt], later: Sequence[ast.stmt]) -> None:
        head, inside, following, after = self.labels(4)
        self.start(head)
        self.branch(test, inside, after)
        self.loops.append((following, after))
        self.start(inside)
        self.block(body)
        self.start(following)
        self.block(later)
        self.go(head)
        self.loops.pop()
        self.start(after)

    # expressions

    def value(self, e: Any, wanted: str = "i64") -> _Value:
        """The value of an expression; a number has the type that is wanted."""
        match e:
            case ast.Constant(None):
                return _Value("null", "ptr")
            case ast.Constant(int(n)):
                return _Value(str(n), wanted)
            case ast.UnaryOp(ast.USub(), ast.Constant(int(n))):
                return _Value(str(-n), wanted)
            case ast.Name(name) if name in self.variables:
                return self.add(
                    self.variables[name], f"load {self.variables[name]}, ptr %{name}.at"
                )
            case ast.Name(name):
                return _Value(f"@{name}", "ptr")
            case ast.Subscript(ast.Name(type), place):
                return self.add(type, f"load {type}, ptr {self.value(place).text}")
            case ast.BinOp(left, operator, right) | ast.Compare(left, [operator], [right]):
                a = self.value(left, wanted)
                b = self.value(right, "i64" if a.type == "ptr" else a.type)
                if a.type == "ptr" and isinstance(operator, ast.Add):
                    return self.add("ptr", f"getelementptr i8, ptr {a.text}, i64 {b.text}")
                result = "i1" if isinstance(e, ast.Compare) else a.type
                return self.add(
                    result, f"{_BINARY[operator.__class__]} {a.type} {a.text}, {b.text}"
                )
            case ast.IfExp(test, then, otherwise):
                condition = self.value(test).text
                a = self.value(then)
                b = self.value(otherwise)
                return self.add(
                    a.type, f"select i1 {condition}, {a.type} {a.text}, {a.type} {b.text}"
                )
            case ast.Call(ast.Name("ir"), [ast.Name(type), ast.Constant(str(text)), *operands]):
                return self.add(type, text.format(*(self.value(o).text for o in operands)))
            case ast.Call(ast.Name(name), operands):
                function = self.functions[name]
                pairs = [
                    (a.annotation.id, o) for a, o in zip(function.args.args, operands, strict=True)
                ]
                arguments = ", ".join([f"{type} {self.value(o, type).text}" for type, o in pairs])
                return self.add(
                    function.returns.id, f"call {function.returns.id} @{name}({arguments})"
                )
        raise SyntaxError(ast.unparse(e))
