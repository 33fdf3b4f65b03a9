"""Syntax nodes of kernels, formulas and loops, located by offsets, before any name is resolved.

The fields of a node are the parts of its rule in `loops.lark`, in their order.
"""

from typing import NamedTuple, TypeAlias

from .syntax_tree import ExpressionNode, Token


class IndicesNode(NamedTuple):
    """`[i, j]`; the indices of a scalar are empty."""

    indices: "list[Expression]"
    end: int


class AccessNode(NamedTuple):
    """A name, which stands for a value, or an element of an array: `%x[%i, 0]`."""

    name: Token
    indices: IndicesNode | None

    @property
    def start(self) -> int:
        return self.name.start

    @property
    def end(self) -> int:
        return self.name.end if self.indices is None else self.indices.end


class AscribedNode(NamedTuple):
    """An expression whose type is stated: `(1 : i32)`."""

    value: "Expression"
    type: Token

    @property
    def start(self) -> int:
        return self.value.start

    @property
    def end(self) -> int:
        return self.type.end


class RangeNode(NamedTuple):
    """`%k in 0..4`, of a reduction."""

    variable: Token
    start: Token
    extent: "Extent"


class ReductionNode(NamedTuple):
    """`sum[%k in 0..4](%x[%k])`."""

    function: Token
    ranges: list[RangeNode]
    body: "Expression"
    end: int

    @property
    def start(self) -> int:
        return self.function.start


class SizeNode(NamedTuple):
    """A computed size in brackets: `[?N + 1]`."""

    opening: Token
    size: "Expression"
    closing: Token

    @property
    def start(self) -> int:
        return self.opening.start

    @property
    def end(self) -> int:
        return self.closing.end


Leaf: TypeAlias = Token | AccessNode | AscribedNode | ReductionNode | SizeNode
Expression: TypeAlias = ExpressionNode[Leaf] | Leaf
Extent: TypeAlias = Token | SizeNode  # a size by its name, a number, or a computed one


def first_token(e: Expression) -> Token:
    """The token that a diagnostic about an expression points to."""
    while not isinstance(e, Token):
        match e:
            case ExpressionNode(operator, operands, start):
                e = operator if operator.start == start else operands[0]
            case AccessNode(name) | ReductionNode(name):
                return name
            case AscribedNode(value):
                e = value
            case SizeNode(_, size):
                e = size
    return e


class TensorNode(NamedTuple):
    name: Token
    type: Token


class ParameterNode(NamedTuple):
    """A parameter of a kernel; `zero` if it is filled with zeros, `of` what it is a view of."""

    tensor: TensorNode
    zero: Token | None
    of: Token | None


# Statements


class BlockNode(NamedTuple):
    statements: "list[StatementNode]"
    end: int


class KindNode(NamedTuple):
    """`vector 8 overlap 2`, or `intrinsic` and its name."""

    kind: Token
    by: Token | None
    width: Token | None
    overlap: Token | None


class StrideNode(NamedTuple):
    """`step 2`, or `step -1`."""

    size: Token
    is_down: bool


class ForNode(NamedTuple):
    word: Token
    variable: Token
    extent: Extent | None
    first: Expression
    last: Expression
    stride: StrideNode | None
    kind: KindNode | None
    body: BlockNode

    @property
    def end(self) -> int:
        return self.body.end


class IfNode(NamedTuple):
    word: Token
    condition: Expression
    then: BlockNode
    otherwise: BlockNode | None

    @property
    def end(self) -> int:
        return (self.otherwise or self.then).end


class LetNode(NamedTuple):
    word: Token
    name: Token
    type: Token
    value: Expression

    @property
    def end(self) -> int:
        return self.value.end


class RegisterNode(NamedTuple):
    word: Token
    name: Token
    type: Token
    zero: Token | None

    @property
    def end(self) -> int:
        return (self.zero or self.type).end


class BufferNode(NamedTuple):
    word: Token
    space: Token
    tensor: TensorNode
    zero: Token | None

    @property
    def end(self) -> int:
        return (self.zero or self.tensor.type).end


class StoreNode(NamedTuple):
    word: Token
    indices: IndicesNode | None
    value: Expression
    streaming: Token | None

    @property
    def end(self) -> int:
        return (self.streaming or self.value).end


class AssertNode(NamedTuple):
    word: Token
    condition: Expression
    message: Token

    @property
    def end(self) -> int:
        return self.message.end


class PrefetchNode(NamedTuple):
    word: Token
    name: Token
    indices: IndicesNode | None

    @property
    def end(self) -> int:
        return (self.indices or self.name).end


class WhileNode(NamedTuple):
    word: Token
    condition: Expression
    body: BlockNode

    @property
    def end(self) -> int:
        return self.body.end


class JumpNode(NamedTuple):
    """`break`, `continue` or `return`."""

    word: Token

    @property
    def end(self) -> int:
        return self.word.end


class FailNode(NamedTuple):
    word: Token
    message: Token

    @property
    def end(self) -> int:
        return self.message.end


class CallNode(NamedTuple):
    """`call @k(%x, 2.0) -> (%y)`."""

    word: Token
    name: Token
    operands: "list[Expression]"
    results: list[Token]
    closing: Token

    @property
    def end(self) -> int:
        return self.closing.end


StatementNode: TypeAlias = (
    ForNode
    | IfNode
    | LetNode
    | RegisterNode
    | BufferNode
    | StoreNode
    | AssertNode
    | PrefetchNode
    | WhileNode
    | JumpNode
    | FailNode
    | CallNode
)


# Kernels


class KernelNode(NamedTuple):
    name: Token
    inputs: list[ParameterNode]
    outputs: list[ParameterNode]
    condition: Expression | None
    sum_order: Token | None
    aliasing: Token | None
    scheduled: Token | None
    body: BlockNode


class PlanNode(NamedTuple):
    """The arguments and results of kernels, where the text declares them."""

    arguments: list[TensorNode]
    results: list[TensorNode]


class StepsNode(NamedTuple):
    """The steps of a loop; without `trips` and `scan` it ends by a condition."""

    trips: Extent | None
    carry: Token
    scan: Token | None = None
    reverse: Token | None = None

    @property
    def word(self) -> Token:
        return self.carry if self.trips is None else first_token(self.trips)


class KernelLoopNode(NamedTuple):
    """A loop over kernels."""

    name: Token
    inputs: list[ParameterNode]
    outputs: list[ParameterNode]
    steps: StepsNode
    operands: list[Token]
    plan: PlanNode
    members: "list[KernelNode | KernelLoopNode]"


MemberNode: TypeAlias = KernelNode | KernelLoopNode | PlanNode


# Formulas


class WhereNode(NamedTuple):
    name: Token
    type: Token
    value: Expression


class FormulaNode(NamedTuple):
    name: Token
    indices: list[Token]
    type: Token
    value: Expression
    wheres: list[WhereNode]

    @property
    def defined(self) -> list[TensorNode]:
        return [TensorNode(self.name, self.type)]


class ConstantNode(NamedTuple):
    """A constant; without values in the text it is a further argument."""

    defined: list[TensorNode]
    dense: Token | None


class ViewNode(NamedTuple):
    defined: list[TensorNode]
    of: Token


class NestNode(NamedTuple):
    defined: list[TensorNode]
    operands: list[Token]
    body: BlockNode


class LoopStepNode(NamedTuple):
    defined: list[TensorNode]
    steps: StepsNode
    operands: list[Token]
    body: "FormulasNode"


StepNode: TypeAlias = FormulaNode | ConstantNode | ViewNode | NestNode | LoopStepNode


class FormulasNode(NamedTuple):
    name: Token
    arguments: list[TensorNode]
    steps: list[StepNode]
    word: Token
    results: list[Token]
