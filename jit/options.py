"""The settings a program is compiled under, as one value that every target, key of a cache (by its
`repr`) and pickle carries.
"""

from dataclasses import dataclass, field
from typing import Literal

from ..dialect.support.diagnostics import TargetError
from ..lowering.processor import Processor, requested

TargetName = Literal["cpu", "cuda", "cuda-sim", "reference"]
Stage = Literal[
    "graph",
    "mlir",
    "linalg",
    "formulas",
    "loops",
    "strategies",
    "schedule",
    "llvm",
    "llvm-opt",
    "asm",
    "cuda",
    "ptx",
]
LEVELS = (0, 2)  # no optimization at all, and all of it


@dataclass(frozen=True)
class CompileOptions:
    """Compiler settings. `optimize=0` lowers every operation to one scalar loop nest, which LLVM
    compiles as it stands; float sums are then added in the order of their indices, as the reference
    adds them within a bound, not in the documented order. `cpu` is the processor that the code is
    for; None leaves the choice to the target. Calls convert arrays to the declared element types by
    `convert`, where every value fits, and return NumPy's arrays by `like="numpy"`, whatever the
    arguments are. With `sanitize` kernels check their accesses, and integers against the intervals
    that passes rely on (target cpu).
    """

    optimize: int = 2
    cpu: Processor | None = field(default_factory=requested)
    convert: bool = field(default=False, repr=False)
    like: str | None = field(default=None, repr=False)
    sanitize: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.optimize, bool) or self.optimize not in LEVELS:
            known = "0, the plain way, and 2, the default"
            raise TargetError(f"the optimization levels are {known}; got {self.optimize!r}")
        if self.like not in (None, "numpy"):
            raise TargetError(
                f'like is "numpy", or None for arrays of the arguments\' kind; got {self.like!r}'
            )


DEFAULT = CompileOptions(cpu=None)
