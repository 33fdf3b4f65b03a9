"""A pass over loops: products of equal factors."""

from __future__ import annotations

from cvm.extending import Apply, Expr, Kernel, Read, apply, map_expressions, register_pass, rewrite


@register_pass()
def square_products(kernel: Kernel) -> Kernel:
    """Write the product of a number and its negative as the negative of its square."""
    return kernel.with_body(map_expressions(kernel.body, lambda e: rewrite(e, _squared)))


def _squared(e: Expr) -> Expr | None:
    """The new form of a product; None for any other node, indices left alone."""
    match e:
        case Read():
            return e
        case Apply("mul", (a, Apply("neg", (b,), _)), _) if a is b:
            return apply("neg", a * a)
    return None
