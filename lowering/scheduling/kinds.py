"""Steps that run iterations at once, vectorize and parallelize, or by declared code, replace.

    vectorize{loop=i by=8}
    for i in 0..n { A(i) }
    =>  for i in 0..n // 8 * 8 vector 8 { A(i) }; for i in n // 8 * 8..n { A(i) }

    replace{loop=i by=dot4}
    for i in 0..4 { A(i) }  =>  for i in 0..4 intrinsic dot4 { A(i) }

Legal where no iteration depends on another, which the verifier of kernels proves; an intrinsic
takes a nest that is its own, statement by statement.
"""

from ...dialect.kernel_ir import loops as ir
from ...dialect.support.diagnostics import Error
from ...dialect.support.suggest import did_you_mean
from ..analysis.accesses import allocated
from ..analysis.intrinsics import INTRINSICS, Differs, Match
from .find_loops import put, runs_whole, serial_loop
from .restructure import moved_back, part_of, rest_of, whole_parts
from .steps import Refused, step

MAX_LANES = 64  # lanes of a vector loop whose number is not given; bounds compile time


@step
def vectorize(kernel: ir.Kernel, loop: str, by: int | None = None, tail: str = "peel") -> ir.Kernel:
    """Run iterations as the lanes of vectors: all of a constant number of them, or `by` at a time
    and the rest one by one, or in a last vector that moves back (`tail=shift`).
    """
    s = serial_loop(kernel, loop)
    if any(isinstance(t, ir.For) and t.kind != "serial" for t in ir.statements(s.body)):
        raise Refused(f"vectorize: {loop} has loops inside that are not serial")
    constant = not s.length.terms and s.length.constant
    lanes = by or constant
    if not lanes or (by is None and lanes > MAX_LANES):
        raise Refused(f"vectorize: the number of iterations of {loop} is not constant: give by")
    if lanes < 2:
        raise Refused(f"vectorize: a vector has at least 2 lanes, got {lanes}")
    if not s.length.divisor % lanes:
        return put(kernel, s, (ir.replace(s, kind="vector", width=lanes),))
    cut = s.start + whole_parts(s, lanes) * lanes
    vectors = ir.replace(s, stop=cut, kind="vector", width=lanes)
    if tail not in ("peel", "shift"):
        raise Refused(f"tail is peel or shift, got {tail}")
    if tail == "peel":
        return put(kernel, s, (vectors, rest_of(s, lanes)))
    last = ir.replace(part_of(s, s.end - lanes, s.end), kind="vector", width=lanes)
    return put(kernel, s, moved_back(s, lanes, vectors, last))


@step
def parallelize(kernel: ir.Kernel, loop: str) -> ir.Kernel:
    """Run iterations on all threads. The loop is outside of all others, and of branches."""
    s = serial_loop(kernel, loop)
    if s not in kernel.body:
        raise Refused(f"parallelize: {loop} is inside another loop or a branch")
    if shared := [t.name for t in allocated(s.body) if t.space == "heap"]:
        raise Refused(f"parallelize: all iterations share the buffer %{shared[0]}")
    if not runs_whole(s):
        raise Refused(f"parallelize: the loop {loop} does not run from 0 to a size")
    return put(kernel, s, (ir.replace(s, kind="parallel", stop=None),))


@step
def replace(kernel: ir.Kernel, loop: str, by: str) -> ir.Kernel:
    """Run a nest by the code of an intrinsic that a package declares."""
    s = serial_loop(kernel, loop)
    if by not in INTRINSICS:
        raise Refused(f"replace: there is no intrinsic {by}{did_you_mean(by, INTRINSICS)}")
    try:
        Match(by, s)
        INTRINSICS[by].verify()
    except (Differs, Error) as e:
        raise Refused(f"replace: {e}") from None
    return put(kernel, s, (ir.replace(s, kind="intrinsic", by=by),))
