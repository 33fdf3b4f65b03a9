"""The actions of `loops.lark`, and the parser of kernels, formulas and sizes, to syntax nodes."""

from typing import Any

from . import kernel_tree as tree
from .lalr import Actions, Language, Parser, Stuck, node_of
from .lalr_tables import END
from .syntax_tree import ExpressionNode, Token


class KernelActions(Actions):
    """The actions of `loops.lark`: most apply the node's constructor to the parts of the rule."""

    start = members = parameters = tensors = values = definitions = tensors_defined = Actions.listed
    operands = Actions.listed
    kernel, kernel_loop, plan = map(node_of, (tree.KernelNode, tree.KernelLoopNode, tree.PlanNode))
    parameter, tensor, kind = map(node_of, (tree.ParameterNode, tree.TensorNode, tree.KindNode))
    loop, branch, let = map(node_of, (tree.ForNode, tree.IfNode, tree.LetNode))
    register, buffer, store = map(node_of, (tree.RegisterNode, tree.BufferNode, tree.StoreNode))
    assert_, fail, prefetch = map(node_of, (tree.AssertNode, tree.FailNode, tree.PrefetchNode))
    while_, jump, call = map(node_of, (tree.WhileNode, tree.JumpNode, tree.CallNode))
    ascribed, access, sized = map(node_of, (tree.AscribedNode, tree.AccessNode, tree.SizeNode))
    range = node_of(tree.RangeNode)
    stride = node_of(lambda *parts: tree.StrideNode(parts[-1], parts[0].text == "-"))
    formulas, constant, view = map(node_of, (tree.FormulasNode, tree.ConstantNode, tree.ViewNode))
    nest, loop_over, where = map(node_of, (tree.NestNode, tree.LoopStepNode, tree.WhereNode))
    steps = node_of(tree.StepsNode)
    open_steps = node_of(lambda word, carry: tree.StepsNode(None, carry))
    block = node_of(lambda *parts: tree.BlockNode([*parts[:-1]], parts[-1].end))
    binary = node_of(
        lambda left, mark, right: ExpressionNode(mark, [left, right], left.start, right.end)
    )
    prefix = node_of(lambda mark, operand: ExpressionNode(mark, [operand], mark.start, operand.end))
    called = node_of(
        lambda name, *parts: ExpressionNode(name, [*parts[:-1]], name.start, parts[-1].end)
    )
    reduction = node_of(
        lambda name, *parts: tree.ReductionNode(name, [*parts[:-2]], parts[-2], parts[-1].end)
    )
    formula = node_of(
        lambda name, indices, type, value, *wheres: tree.FormulaNode(
            name, indices, type, value, [*wheres]
        )
    )

    def indices(self, parts: list[Any]) -> tree.IndicesNode:
        return tree.IndicesNode([p for p in parts[:-1] if p is not None], parts[-1].end)


KERNELS = Language("loops", KernelActions())


class UnexpectedToken(Exception):
    """A token that cannot stand where it does, and what may stand there."""

    def __init__(self, token: Token, last: Token | None, expected: set[str]) -> None:
        super().__init__(token)
        self.token = token
        self.expected = expected
        # of the end, the place of the last token
        self.start = token.start if token.type != END else last.start if last is not None else 0


def parse_members(text: str, start: int = 0, end: int | None = None) -> list[tree.MemberNode]:
    """The kernels, loops and declarations of a stretch of text."""
    return _parse("start", text, start, end)


def parse_formulas_node(text: str) -> tree.FormulasNode:
    return _parse("formulas", text)


def parse_size(text: str) -> tree.Expression:
    return _parse("size_sum", text)


def _parse(goal: str, text: str, start: int = 0, end: int | None = None) -> Any:
    """The node of a start symbol; raises UnexpectedToken. A keyword is a name where the grammar
    takes a name and not the keyword.
    """
    end = len(text) if end is None else end
    parser = Parser(KERNELS, goal)
    token = last = None
    try:
        for token in KERNELS.scanner.tokens(text, start, end):
            row = parser.row
            if token.type not in row and "NAME" in row and token.text.isidentifier():
                token = Token("NAME", token.text, token.start, token.end)
            parser.feed(token)
            last = token
        token = Token(END, "", end, end)
        parser.feed(token)
    except Stuck:
        assert token is not None
        expected = {kind for kind in parser.row if kind.isupper() and parser.accepts(kind)}
        raise UnexpectedToken(token, last, expected) from None
    return parser.values[-1]
