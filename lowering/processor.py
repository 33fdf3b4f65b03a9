"""Target description: the vectors, dot products and caches of a CPU, and the units of a GPU, that
loops are shaped by.

The machine's numbers stand here and nowhere else. `jit` fills a description in from LLVM and the
system; `--cpu NAME`, `cpu=` and tests name or build one. Passes read `processor()`, the description
that is compiled for at the moment, as TVM's passes read `Target.current()`; results never depend on
it.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class DotProduct:
    """A vector instruction that multiplies neighboring terms of each 32-bit lane and adds the
    products.
    """

    function: str  # pairdot, bytepairs, or sums of quaddot_us and quaddot: quadsum and quadsum_ss
    vector_bytes: int
    requires: tuple[str, ...]  # alternatives: LLVM's names of features, all of those of one string
    mnemonic: str
    llvm: str  # intrinsic
    operands: str  # of the intrinsic, in its order: a and b are multiplied, c is added to
    operand_bits: int  # element of the factors
    result_bits: int  # element of the result, and of what it is added to

    def is_in(self, features: Collection[str]) -> bool:
        """Test whether a processor with these features has the instruction."""
        return any(set(alternative.split()) <= set(features) for alternative in self.requires)


AMX = frozenset({"amx-tile", "amx-int8"})  # LLVM's names of features that tiles of bytes need
MatrixTiles: TypeAlias = Literal["", "instructions", "loops"]
VNNI = ("avxvnni", "avx512vnni avx512vl")
DOT_PRODUCTS = (
    DotProduct("pairdot", 16, ("sse2",), "pmaddwd", "llvm.x86.sse2.pmadd.wd", "ab", 16, 32),
    DotProduct("pairdot", 32, ("avx2",), "vpmaddwd", "llvm.x86.avx2.pmadd.wd", "ab", 16, 32),
    DotProduct(
        "pairdot", 64, ("avx512bw",), "vpmaddwd", "llvm.x86.avx512.pmaddw.d.512", "ab", 16, 32
    ),
    DotProduct(
        "bytepairs", 16, ("ssse3",), "pmaddubsw", "llvm.x86.ssse3.pmadd.ub.sw.128", "ab", 8, 16
    ),
    DotProduct("bytepairs", 32, ("avx2",), "vpmaddubsw", "llvm.x86.avx2.pmadd.ub.sw", "ab", 8, 16),
    DotProduct(
        "bytepairs", 64, ("avx512bw",), "vpmaddubsw", "llvm.x86.avx512.pmaddubs.w.512", "ab", 8, 16
    ),
    DotProduct("quadsum", 16, VNNI, "vpdpbusd", "llvm.x86.avx512.vpdpbusd.128", "cab", 32, 32),
    DotProduct("quadsum", 32, VNNI, "vpdpbusd", "llvm.x86.avx512.vpdpbusd.256", "cab", 32, 32),
    DotProduct(
        "quadsum", 64, ("avx512vnni",), "vpdpbusd", "llvm.x86.avx512.vpdpbusd.512", "cab", 32, 32
    ),
    DotProduct(
        "quadsum", 16, ("i8mm",), "usdot", "llvm.aarch64.neon.usdot.v4i32.v16i8", "cab", 8, 32
    ),
    DotProduct(
        "quadsum_ss", 16, ("dotprod",), "sdot", "llvm.aarch64.neon.sdot.v4i32.v16i8", "cab", 8, 32
    ),
)
AVX2_PRODUCTS = tuple(d for d in DOT_PRODUCTS if d.requires[0] in ("sse2", "ssse3", "avx2"))
ROWS_AT_ONCE = 8  # rows of memory that are read at once; tuned by hand (Zen 4, Zen 5)
# blocks of columns, at least, for threads to share; more would read rows in short pieces, which
# is slower; tuned by hand (Zen 4, Zen 5)
MIN_BLOCKS = 2
TILE_VECTOR_BYTES = (
    32,
)  # narrower vectors than a processor's widest, for contractions of few columns


@dataclass(frozen=True)
class Gpu:
    """The units of a GPU; the defaults are an H100's."""

    warp: int = 32  # threads
    multiprocessors: int = 132
    shared_bytes: int = 48 << 10  # static shared memory of a block
    dynamic_bytes: int = (
        99 << 10
    )  # of a block that asks for it; on any GPU since Ampere, and twice on an H100
    line_bytes: int = 128  # of a coalesced access of a warp
    access_bytes: int = 16  # of the widest access of a thread
    bank_bytes: int = 4  # of shared memory


@dataclass(frozen=True)
class Tuning:
    """Thresholds of passes, tuned by hand on processors with AVX2 and AVX-512 (Zen 4, Zen 5): they
    decide when a pass pays, never a result.
    """

    tile_rows: int = 64  # elements of a transposed tile along the outer loop
    tile_row_bytes: int = (
        1024  # of a transposed tile along the inner loop: its rows stay in the first-level cache
    )
    tile_write_bytes: int = (
        1024  # of a row that a tile writes where strips overlap: runs for streaming stores
    )
    tile_read_bytes: int = 128  # of a row that such a tile reads: two lines, as they are prefetched
    tile_copy_bytes: int = (
        256  # of a row that is copied first: shorter copies cost more than cache-set conflicts
    )
    short_row_bytes: int = 512  # up to which a row is read whole
    short_axis_trips: int = 64  # iterations around a short axis from which its vectors pay
    align_vectors: int = 16  # vectors of a loop from which peeling to a cache line pays
    task_reductions: int = 256  # iterations with reductions of a task of a thread
    task_iterations: int = (
        4096  # other iterations of a task: a whole number of vectors of any width, 16 KB of f32
    )
    narrow_reads: int = 4  # reads of an element up to which narrow storage pays: each widens it
    column_extent: int = 16  # rows, and columns, from which a reduction by rows pays
    column_pitch_bytes: int = (
        256  # of a row up to which rows count as contiguous: the hardware prefetcher follows them
    )
    cached_operations: int = (
        8  # operations of an element from which storing it costs less than repeating them
    )
    widening_steps: int = 4  # steps from which an intermediate sum pays
    fused_rows: int = 16  # rows: with fewer, kernels parallelize better one by one
    packed_rows: int = 4  # rows of a contraction from which packing pays: half a tile
    packed_terms: int = 8  # terms of a sum from which packing pays
    share_tiles: int = 8  # tiles of a thread's share of the rows, at least
    panels_together: int = (
        8  # panels that are packed together, beside their tiles; 0: all of them before any tile
    )
    long_epilogue: int = (
        24  # operations on a sum from which the epilogue is a loop, not repeated for each register
    )
    winograd_rows: int = 8  # rows from which transforms of the input pay
    winograd_tiles: int = 16  # tiles of results from which transforms of weights pay
    winograd_steps: int = 8  # words of a sum from which transforms pay
    winograd_results: int = (
        512  # results of a channel from which weights are transformed in every call
    )
    place_steps: int = (
        16  # words of a sum for each pixel, from which each pixel has its own sum of weights
    )
    depthwise_columns: int = 4  # columns of a window's results: a short vector
    depthwise_terms: tuple[int, int] = (4, 64)  # terms of a window, least and most
    skewed_ticks: int = (
        4  # ticks in one pass over the state: more would recompute more rows than they save
    )
    skewed_rows: int = 16  # rows of a block per recomputed row
    ticks_at_once: int = 1024  # ticks that one addition replaces
    group_scalars: int = 16  # isomorphic scalars from which vectors pay
    fused_nodes: int = (
        400  # nodes of a fused formula: beyond that, compiling costs more than memory traffic
    )
    fused_kernel_nodes: int = (
        600  # nodes of a fused kernel with loops: registers and compile time are limited
    )
    fused_lookback: int = (
        100  # groups before a kernel that are considered for fusion: compile time stays linear
    )
    checked_bytes: int = (
        1 << 14
    )  # of an array with a range that a thread checks at a time: half a first-level cache
    parallel_checked_bytes: int = 1 << 17  # of such an array from which waking other threads pays
    unit_lines: int = 150  # of IR from which a codegen unit pays: a module has a fixed cost
    unit_growth: int = 2  # ratio of those lines to those of the codegen unit before
    unit_most: int = (
        4000  # lines beyond which it does not grow: nothing is left to do beside the last one
    )
    strategy_costs: tuple[
        tuple[str, float], ...
    ] = ()  # factors of strategies' costs: 0 forces one, inf leaves it out
    skipped_passes: tuple[str, ...] = ()  # names of passes that do not run


@dataclass(frozen=True)
class Processor:
    """A CPU. The defaults are what compiled programs assume where nothing is known: AVX2's
    registers, and Zen 3's caches.
    """

    cpu: str = ""  # LLVM's name; empty: the machine code is for this machine
    triple: str = ""  # LLVM's; empty: this machine's
    features: tuple[str, ...] = ()  # LLVM's names of those beyond the cpu's
    vector_bytes: int = 32  # of loops over elements
    tile_vector_bytes: int = 32  # of contractions, the widest that pay
    fma_bytes: int = 32  # that a multiply-add unit takes in a cycle: wider vectors take several
    vector_registers: int = 16
    dot_products: tuple[DotProduct, ...] = AVX2_PRODUCTS
    # products of matrix tiles of bytes, by instructions (AMX) or emulated by loops
    matrix_tiles: MatrixTiles = ""
    l1_bytes: int = 32 << 10
    l2_bytes: int = 512 << 10
    l3_bytes: int = 32 << 20  # of the last level
    line_bytes: int = 64
    page_bytes: int = 4 << 10
    streams: bool = True  # has stores past the caches that pay
    wake_operations: int = 30_000  # that take as long as waking a thread
    packing_products: int = 1 << 15  # of a contraction that take as long as packing its operands
    tuning: Tuning = field(default_factory=Tuning)
    gpu: Gpu = field(default_factory=Gpu)

    @property
    def without_matrix_tiles(self) -> "Processor":
        """The processor, where nobody asks the system for the use of its tiles."""
        others = tuple(f for f in self.features if f not in AMX)
        return replace(self, matrix_tiles="", features=others)

    @property
    def lanes(self) -> int:
        """The 32-bit lanes of a vector of a contraction."""
        return self.tile_vector_bytes // 4

    @property
    def parallel_products(self) -> int:
        """The products of a contraction for which other threads are woken: eight take as long as an
        operation.
        """
        return max(1, 8 * self.wake_operations)

    @property
    def by_tile_width(self) -> "tuple[Processor, ...]":
        """The processor with each width of vectors that contractions may have, the widest first."""
        return self, *(
            replace(self, tile_vector_bytes=w)
            for w in TILE_VECTOR_BYTES
            if w < self.tile_vector_bytes
        )

    @property
    def fma_cycles(self) -> float:
        """The cycles of a multiply-add of the vectors of a contraction on one unit."""
        return max(1, self.tile_vector_bytes / self.fma_bytes)

    @property
    def has_doubles(self) -> bool:
        """Test whether it has instructions for f64 arithmetic."""
        if self.triple.startswith("thumb"):
            return self.triple.endswith("hf") and self.cpu in WITH_DOUBLES
        return not self.triple.startswith("riscv") or "d" in self.features

    @property
    def has_int8_dot_product(self) -> bool:
        """Test whether one instruction adds the products of four bytes to a sum, modulo 2^32."""
        return any(d.function.startswith("quadsum") for d in self.dot_products)

    @property
    def is_x86(self) -> bool:
        return any(d.function == "pairdot" for d in self.dot_products)

    @property
    def int8_dot_product_is_signed(self) -> bool:
        """Test whether its byte dot product is of two signed operands."""
        return self.has_int8_dot_product and all(d.function != "quadsum" for d in self.dot_products)


GENERIC = Processor()
# any processor that C is compiled for: f64 may be a library's, and memory is scarce, so that every
# array is as narrow as its values
FOR_C = Processor(
    triple="thumbv6m-none-eabi", dot_products=(), l2_bytes=0, tuning=Tuning(narrow_reads=1 << 30)
)
_current: ContextVar[Processor | None] = ContextVar("processor", default=None)


def processor() -> Processor:
    """The description that is compiled for."""
    return _current.get() or GENERIC


def requested() -> Processor | None:
    """The processor description that the caller chose, if any."""
    return _current.get()


@contextmanager
def compiling_for(described: Processor | None) -> Iterator[None]:
    """Compiles for this processor meanwhile; None leaves the choice as it is."""
    outer = _current.get()
    try:
        _current.set(outer if described is None else described)
        yield
    finally:
        _current.set(outer)


_target = ContextVar("target", default="cpu")


def lowered_target() -> str:
    """The name of the target for which functions are lowered."""
    return _target.get()


@contextmanager
def lowering_for(target: str) -> Iterator[None]:
    """Lowers for the target of this name meanwhile, with its strategies."""
    token = _target.set(target)
    try:
        yield
    finally:
        _target.reset(token)


# processors by name: those of the x86-64 psABI, and others as one of these with more features

_V1 = ("cmov", "cx8", "fxsr", "mmx", "sse", "sse2")
_V2 = (*_V1, "crc32", "cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
ARM = {
    "cortex-a53": ("neon",),
    "cortex-a76": ("neon", "dotprod"),
    "neoverse-n1": ("neon", "dotprod"),
    "neoverse-v1": ("neon", "dotprod", "i8mm"),
}
# the architecture, and the ABI: with floating-point registers where the processor has them
CORTEX_M = {
    **dict.fromkeys(("cortex-m0", "cortex-m0plus"), "thumbv6m-none-eabi"),
    "cortex-m3": "thumbv7m-none-eabi",
    **dict.fromkeys(("cortex-m4", "cortex-m7"), "thumbv7em-none-eabihf"),
    "cortex-m23": "thumbv8m.base-none-eabi",
    "cortex-m33": "thumbv8m.main-none-eabihf",
    **dict.fromkeys(("cortex-m55", "cortex-m85"), "thumbv8.1m.main-none-eabihf"),
}
WITH_DOUBLES = frozenset({"cortex-m7", "cortex-m55", "cortex-m85"})
SCALAR = frozenset({*CORTEX_M, "generic-rv32"})  # without vectors: shorter ones make less code
_IMAC = ("m", "a", "c")
_GC = (*_IMAC, "f", "d")
# of the system, by LLVM's name of a processor of another architecture, where none is given
TRIPLES = {
    **dict.fromkeys(ARM, "aarch64-linux-gnu"),
    "generic-rv64": "riscv64-linux-gnu",
    "generic-rv32": "riscv32-unknown-elf",
    **CORTEX_M,
    "generic": "wasm32-unknown-unknown",
}
ENVIRONMENTS = frozenset({"eabi", "eabihf", "elf"})
VENDORS = frozenset({"unknown", "pc", "apple", "nvidia", "amd", "ibm", "suse"})
_X86 = {"x86-64": _V1, "x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}
LEVELS: dict[str, tuple[str, ...]] = {**_X86, **dict.fromkeys(TRIPLES, ()), **ARM}
NAMED: dict[str, tuple[str, tuple[str, ...], dict[str, int]]] = {
    **{name: (name, (), {}) for name in LEVELS if not name.startswith("generic")},
    "rv64gc": ("generic-rv64", _GC, {}),
    "rv64gcv": ("generic-rv64", (*_GC, "v"), {}),
    "rv32imac": ("generic-rv32", _IMAC, {}),
    "rv32gc": ("generic-rv32", _GC, {}),
    "wasm32": ("generic", ("simd128",), {}),
    "haswell": ("x86-64-v3", (), {"l2_bytes": 256 << 10}),
    "znver3": ("x86-64-v3", (), {}),
    "alderlake": ("x86-64-v3", ("avxvnni",), {"l1_bytes": 48 << 10, "l2_bytes": 1280 << 10}),
    "skylake-avx512": ("x86-64-v4", (), {"l2_bytes": 1 << 20}),
    "cascadelake": ("x86-64-v4", ("avx512vnni",), {"l2_bytes": 1 << 20}),
    "icelake-server": (
        "x86-64-v4",
        ("avx512vnni",),
        {"l1_bytes": 48 << 10, "l2_bytes": 1280 << 10},
    ),
    "sapphirerapids": (
        "x86-64-v4",
        ("avx512vnni", "avxvnni", "amx-tile", "amx-int8"),
        {"l1_bytes": 48 << 10, "l2_bytes": 2 << 20},
    ),
    "znver4": ("x86-64-v4", ("avx512vnni",), {"l2_bytes": 1 << 20}),
    "znver5": ("x86-64-v4", ("avx512vnni", "avxvnni"), {"l1_bytes": 48 << 10, "l2_bytes": 1 << 20}),
}
# LLVM's names of processors with AVX-512 whose multiply-add units take 32 bytes, or that have one
# of 64
HALVED = frozenset({"znver4", "cannonlake", "icelake-client", "tigerlake", "rocketlake"})


def named(name: str) -> Processor | None:
    if name not in NAMED:
        return None
    level, more, sizes = NAMED[name]
    return with_features((*LEVELS[level], *more), name, level, more, sizes)


def freestanding(triple: str) -> bool:
    """Test whether a triple is of no operating system: there is no heap then."""
    return bool(triple) and {*triple.split("-")[1:]} <= {"none", "unknown", *ENVIRONMENTS}


def normalized(triple: str) -> str:
    """A triple with its vendor and system in their places, as LLVM reads it, which takes `none` for
    the vendor else.
    """
    architecture, *rest = triple.split("-")
    if rest and rest[0] not in VENDORS:
        rest.insert(0, "unknown")
    if len(rest) == 2 and rest[1] in ENVIRONMENTS:
        rest.insert(1, "none")
    return "-".join([architecture, *rest])


def with_features(
    present: Collection[str],
    name: str,
    cpu: str,
    features: tuple[str, ...],
    settings: Mapping[str, object],
) -> Processor:
    """The processor of LLVM's name that has these features; code is made for a cpu with some of
    them.
    """
    wide = "avx512bw" in present and "avx512vl" in present
    narrow = 32 if "avx" in present else 16
    found = Processor(
        cpu,
        TRIPLES.get(cpu, ""),
        features,
        vector_bytes=16 if cpu in SCALAR else 32,
        tile_vector_bytes=64 if wide else narrow,
        fma_bytes=64 if wide and name not in HALVED else narrow,
        vector_registers=32 if wide or {"neon", "v"} & set(present) else 16,
        dot_products=tuple(d for d in DOT_PRODUCTS if d.is_in(present)),
        matrix_tiles="instructions" if AMX.issubset(present) else "",
    )
    return replace(found, **settings)
