"""The emulator of a GPU on kernels in PTX: copies and loads of matrices in shared memory, and
mistakes that it finds.
"""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
from cvm.jit.cuda import nvrtc
from cvm.jit.cuda.emulator.float_operations import fma, narrowed
from cvm.jit.cuda.emulator.memory import Memory
from cvm.jit.cuda.emulator.ptx import Unsupported, parse
from cvm.jit.cuda.emulator.races import Fault
from cvm.jit.cuda.emulator.run_grid import launch
from cvm.jit.cuda.gpu_cost_model import resources
from emulated_kernels import needs_nvrtc

RANDOM = np.random.default_rng(7)
HEAD = """
.visible .entry work(.param .u64 a, .param .u64 b)
{
  .reg .pred %p<9>;
  .reg .b32 %r<40>;
  .reg .b64 %rd<40>;
  .shared .align 16 .b8 s[4096];
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, s;
"""
# thread t copies 16 bytes to its place, and later reads those of thread t + 1
PLACES = """
  mul.wide.u32 %rd3, %r1, 16;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  cvt.u32.u64 %r3, %rd3;
  add.s32 %r4, %r2, %r3;
  add.s32 %r5, %r1, 1;
  and.b32 %r5, %r5, 63;
  shl.b32 %r5, %r5, 4;
  add.s32 %r6, %r2, %r5;
"""
COPY = "cp.async.cg.shared.global [%r4], [%rd4], 16;"
READ = (
    "ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r6];\n"
    "  st.global.v4.u32 [%rd5], {%r10, %r11, %r12, %r13};"
)
OWN = READ.replace("%r6", "%r4")
COMMIT, WAIT, BARRIER = "cp.async.commit_group;", "cp.async.wait_group 0;", "bar.sync 0;"


def run(*lines: str, a: np.ndarray, b: np.ndarray, threads: int = 64, head: str = PLACES) -> Memory:
    text = "\n  ".join([HEAD + head, *lines, "ret;\n}\n"])
    memory = Memory(count_transactions=True)
    given = [memory.give(x) for x in (a, b)]
    launch(parse(text)["work"], 1, threads, given, memory)
    memory.take(given[1], b)
    return memory


def arrays(count: int = 256) -> tuple[np.ndarray, np.ndarray]:
    return RANDOM.integers(0, 1 << 32, count, np.uint32), np.zeros(count, np.uint32)


def test_bytes_arrive_after_a_wait_and_a_barrier() -> None:
    a, b = arrays()
    run(COPY, COMMIT, WAIT, BARRIER, READ, a=a, b=b)
    np.testing.assert_array_equal(b, np.roll(a, -4))
    b[...] = 0
    run(COPY, "cp.async.wait_all;", BARRIER, READ, a=a, b=b)
    np.testing.assert_array_equal(b, np.roll(a, -4))


def test_a_thread_reads_its_own_copy_without_a_barrier() -> None:
    a, b = arrays()
    run(COPY, COMMIT, WAIT, OWN, a=a, b=b)
    np.testing.assert_array_equal(b, a)


@pytest.mark.parametrize("width", [4, 8, 16])
@pytest.mark.parametrize("size", [0, 1, 3, 4, 8, 13, 16])
def test_bytes_beyond_the_size_are_zeros(width: int, size: int) -> None:
    a, b = arrays()
    copy = f"mov.u32 %r7, {size};\n  cp.async.ca.shared.global [%r4], [%rd4], {width}, %r7;"
    fill = "mov.u32 %r8, -1;\n  st.shared.v4.u32 [%r4], {%r8, %r8, %r8, %r8};"
    if size > width:
        with pytest.raises(Fault, match="of more bytes than that"):
            run(fill, copy, "cp.async.wait_all;", OWN, a=a, b=b)
        return
    run(fill, copy, "cp.async.wait_all;", OWN, a=a, b=b)
    wanted = np.full((64, 16), 255, np.uint8)
    wanted[:, :width] = 0
    wanted[:, :size] = a.view(np.uint8).reshape(64, 16)[:, :size]
    np.testing.assert_array_equal(b.view(np.uint8).reshape(64, 16), wanted)


def test_each_thread_has_its_own_size_and_reads_no_more() -> None:
    """The last thread's source lies outside of the array, and is not read."""
    a, b = arrays()
    guard = "setp.lt.u32 %p1, %r1, 63;\n  selp.b32 %r7, 16, 0, %p1;"
    run(guard, COPY.replace("16;", "16, %r7;"), "cp.async.wait_all;", OWN, a=a[:252], b=b)
    np.testing.assert_array_equal(b, np.where(np.arange(256) < 252, a, 0))
    with pytest.raises(
        Fault, match=r"^work, line \d+ of its PTX, cp\.async\.cg.*: a read outside of its array"
    ):
        run(COPY, "cp.async.wait_all;", OWN, a=a[:252], b=b)


SECOND = "add.s32 %r9, %r4, 1024;\n  cp.async.cg.shared.global [%r9], [%rd4], 16;"


@pytest.mark.parametrize("read", [READ, OWN])
@pytest.mark.parametrize(
    "wait", ["", COMMIT, "cp.async.wait_group 0;", COMMIT + "cp.async.wait_group 1;"]
)
def test_a_copy_that_was_not_waited_for_is_found(wait: str, read: str) -> None:
    """No wait, one that comes before the commit, and one that leaves a group under way."""
    a, b = arrays()
    with pytest.raises(
        Fault, match=r"ld\.shared.*: an access to shared memory that cp\.async writes, before"
    ):
        run(COPY, wait, BARRIER, read, a=a, b=b)


def test_groups_end_in_the_order_of_their_commits() -> None:
    a, b = arrays()
    lines = [COPY, COMMIT, SECOND, COMMIT]
    run(*lines, "cp.async.wait_group 1;", BARRIER, READ, a=a, b=b)
    np.testing.assert_array_equal(b, np.roll(a, -4))
    with pytest.raises(Fault, match=r"before cp\.async\.wait_group"):
        run(
            *lines, "cp.async.wait_group 1;", BARRIER, READ.replace("[%r6]", "[%r6+1024]"), a=a, b=b
        )
    with pytest.raises(Fault, match=r"before cp\.async\.wait_group"):
        run(*lines, "cp.async.wait_group 2;", BARRIER, READ, a=a, b=b)
    run(
        *lines,
        COMMIT,
        COMMIT,
        "cp.async.wait_group 2;",
        BARRIER,
        READ.replace("[%r6]", "[%r6+1024]"),
        a=a,
        b=b,
    )
    np.testing.assert_array_equal(b, np.roll(a, -4))


def test_another_threads_copy_needs_a_barrier_after_the_wait() -> None:
    a, b = arrays()
    for lines in ([COPY, COMMIT, WAIT], [COPY, COMMIT, BARRIER, WAIT]):
        with pytest.raises(
            Fault, match="reads shared memory that another wrote since the last barrier"
        ):
            run(*lines, READ, a=a, b=b)


def test_a_copy_over_bytes_that_others_still_read_is_found() -> None:
    a, b = arrays()
    lines = [COPY, COMMIT, WAIT, BARRIER, READ]
    with pytest.raises(
        Fault, match="writes shared memory that another read since the last barrier"
    ):
        run(*lines, COPY, a=a, b=b)
    run(*lines, BARRIER, COPY, a=a, b=b)


def test_two_writes_of_a_byte_under_way_are_found() -> None:
    a, b = arrays()
    for line in (COPY, "st.shared.u8 [%r4+15], %r1;"):
        with pytest.raises(Fault, match=r"before cp\.async\.wait_group"):
            run(COPY, COMMIT, line, a=a, b=b)


def test_races_are_found_between_accesses_of_different_widths() -> None:
    a, b = arrays()
    bytes_of_others = "ld.shared.u8 %r10, [%r6+3];\n  st.global.u32 [%rd5], %r10;"
    with pytest.raises(Fault, match="reads shared memory that another wrote"):
        run("st.shared.u32 [%r4], %r1;", bytes_of_others, a=a, b=b)
    run("st.shared.u8 [%r4], %r1;", bytes_of_others, a=a, b=b)  # of the same word, but other bytes


@pytest.mark.parametrize(
    "line",
    [
        "cp.async.cg.shared.global [%r4], [%rd4], 8;",
        "cp.async.ca.shared.global [%r4], [%rd4], 12;",
        "cp.async.bulk.commit_group;",
        "cp.async.mbarrier.arrive.shared.b64 [%r4];",
        "ldmatrix.sync.aligned.m8n16.x1.shared.b8 {%r10}, [%r4];",
        "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r10}, [%r4];",
    ],
)
def test_what_the_emulator_does_not_know_is_refused(line: str) -> None:
    a, b = arrays()
    with pytest.raises(Unsupported):
        run(line, a=a, b=b)


# Barriers

DIVERGENT = "setp.lt.u32 %p1, %r1, 32;\n  @%p1 bra $L__BB0_1;\n  {0}\n$L__BB0_1:\n  {1}"


@pytest.mark.parametrize(
    "lines",
    [
        DIVERGENT.format(BARRIER, ""),  # half of the threads come
        DIVERGENT.format(
            f"{BARRIER}\n  bra $L__BB0_2;", f"{BARRIER}\n$L__BB0_2:"
        ),  # each half to its own
        DIVERGENT.format("ret;", BARRIER),  # the others have left
    ],
)
def test_a_barrier_in_a_divergent_branch_is_found(lines: str) -> None:
    a, b = arrays()
    with pytest.raises(
        Fault,
        match=r"work, line \d+ of its PTX, bar\.sync 0: 32 of 64 threads of a block come to a",
    ):
        run(lines, a=a, b=b)


def test_the_line_of_a_fault_is_that_of_the_text() -> None:
    a, b = arrays()
    with pytest.raises(Fault) as raised:
        run(COPY, "", READ, a=a, b=b)
    line = int(str(raised.value).partition("line ")[2].partition(" ")[0])
    text = "\n  ".join([HEAD + PLACES, COPY, "", READ])
    assert "ld.shared" in text.splitlines()[line - 1]


# Matrices

ROWS = """
  and.b32 %r3, %r1, 31;
  shl.b32 %r4, %r3, 4;
  add.s32 %r4, %r4, %r2;
  mul.wide.u32 %rd3, %r3, 16;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
"""


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_matrices_are_loaded_by_a_warp(count: int, trans: str) -> None:
    """Thread t gets of matrix m the elements 2 (t mod 4) and the next of row t / 4, or of that
    column of it.
    """
    a, b = arrays(128)
    registers = ", ".join(f"%r{10 + n}" for n in range(count))
    load = f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{registers}}}, [%r4];"
    stores = [f"st.global.u32 [%rd5+{4 * n}], %r{10 + n};" for n in range(count)]
    memory = run(
        COPY, "cp.async.wait_all;", BARRIER, load, *stores, a=a, b=b, threads=32, head=ROWS
    )
    matrices = a.view(np.uint16).reshape(4, 8, 8)[:count]
    if trans:
        matrices = matrices.transpose(0, 2, 1)
    wanted = np.ascontiguousarray(matrices).view(np.uint32).reshape(count, 32)
    np.testing.assert_array_equal(b.reshape(32, 4)[:, :count].T, wanted)
    assert memory.statistics["bank conflicts"] == 0


def test_matrices_are_read_from_the_places_of_other_threads() -> None:
    a, b = arrays(128)
    load = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r4];"
    with pytest.raises(Fault, match=r"before cp\.async\.wait_group"):
        run(COPY, load, a=a, b=b, threads=32, head=ROWS)
    with pytest.raises(Fault, match="another wrote since the last barrier"):
        run(COPY, "cp.async.wait_all;", load, a=a, b=b, threads=32, head=ROWS)
    with pytest.raises(Fault, match="an access to 16 bytes that is not aligned"):
        run("add.s32 %r4, %r4, 8;", load, a=a, b=b, threads=32, head=ROWS)
    with pytest.raises(Fault, match="a warp's instruction without all of its threads"):
        run("setp.lt.u32 %p1, %r1, 16;", "@%p1 " + load, a=a, b=b, threads=32, head=ROWS)


def test_conflicts_of_rows_in_one_bank_are_counted() -> None:
    """Rows of 128 bytes begin in one bank; the eight of a matrix are then read one after the
    other.
    """
    a, b = arrays(128)
    load = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r5];"
    memory = run(
        "shl.b32 %r5, %r3, 7;\n  add.s32 %r5, %r5, %r2;", load, a=a, b=b, threads=32, head=ROWS
    )
    assert (memory.statistics["shared answers"], memory.statistics["bank conflicts"]) == (4, 28)


# Counts

STRIDED = """
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  mul.lo.s32 %r4, %r1, {stride};
  and.b32 %r4, %r4, 4095;
  add.s32 %r4, %r4, %r2;
  ld.global.u32 %r10, [%rd4];
  st.shared.u32 [%r4], %r10;
  bar.sync 0;
  ld.shared.u32 %r11, [%r4];
  add.rn.f32 %r12, %r11, %r11;
  st.global.u32 [%rd5], %r11;
"""


def test_what_a_kernel_asks_is_counted() -> None:
    a, b = arrays(64)
    counts = run(a=a, b=b, head=STRIDED.format(stride=4)).statistics
    assert np.array_equal(a, b)
    for what in ("load", "store"):
        found = [counts[f"{what} {k}"] for k in ("bytes", "requests", "sectors", "least")]
        assert found == [256, 2, 8, 8]
    assert (counts["shared answers"], counts["bank conflicts"]) == (4, 0)
    issued = {
        name.removeprefix("issued."): n for name, n in counts.items() if name.startswith("issued.")
    }
    once = (
        "mul.wide.u32",
        "mul.lo.s32",
        "and.b32",
        "add.s32",
        "ld.global.u32",
        "st.shared.u32",
        "bar.sync",
    )
    once += ("ld.shared.u32", "add.rn.f32", "st.global.u32", "ret")
    named = {
        name: n
        for name, n in issued.items()
        if name.split(".")[0] in ("add", "ld", "st", "bar", "mul", "and", "ret")
    }
    assert {name: named[name] for name in once} == dict.fromkeys(once, 2), "of two warps"
    assert named["add.s64"] == 4


def test_some_blocks_of_a_grid_are_counted() -> None:
    """Those that are asked for run, with their own numbers, whether they fit in one batch or
    not.
    """
    text = (
        HEAD
        + """
  mov.u32 %r3, %ctaid.x;
  mul.wide.u32 %rd3, %r3, 4;
  add.s64 %rd4, %rd2, %rd3;
  setp.eq.u32 %p1, %r1, 0;
  @%p1 st.global.u32 [%rd4], %r3;
  ret;
}
"""
    )
    for some in (range(3, 5), range(2, 100)):
        memory, b = Memory(count_transactions=True), np.full(100, 200, np.uint32)
        given = [memory.give(x) for x in (b, b)]
        launch(parse(text)["work"], 100, 512, given, memory, some)
        memory.take(given[1], b)
        np.testing.assert_array_equal(
            b, np.where(np.isin(np.arange(100), some), np.arange(100), 200)
        )
        assert memory.statistics["issued.ret"] == 16 * len(some)


def test_a_kernel_with_bank_conflicts_is_predicted_to_be_slower() -> None:
    """Words 128 bytes apart lie in one bank."""
    times = []
    for stride in (4, 128):
        a, b = arrays(32)
        counts = run(a=a, b=b, threads=32, head=STRIDED.format(stride=stride)).statistics
        assert counts["bank conflicts"] == (0 if stride == 4 else 2 * 31)
        times.append(resources(counts, 0, 1, "H100")["L1 and shared"])
    assert times[1] > 6 * times[0]


# CUDA C with inline assembly, as NVRTC compiles it

PRODUCT = r"""
extern "C" __global__ void work(const signed char* a, const signed char* b, int* c) {
  __shared__ __align__(16) signed char left[2][16 * 48], right[2][8 * 48];  // rows of 32 bytes, 48 apart
  int t = threadIdx.x, sum[4] = {0, 0, 0, 0};
  auto at = [](const void* p) { return (unsigned)__cvta_generic_to_shared(p); };
  auto fetch = [&](int k) {
    int row = t / 2, part = t % 2 * 16;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at(left[k & 1] + row * 48 + part)), "l"(a + row * 128 + k * 32 + part));
    if (t < 16)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at(right[k & 1] + row * 48 + part)), "l"(b + row * 128 + k * 32 + part));
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  fetch(0);
  for (int k = 0; k < 4; ++k) {
    if (k < 3) fetch(k + 1);
    if (k < 3) asm volatile("cp.async.wait_group 1;" ::: "memory"); else asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    unsigned x[4], y[2];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
      : "r"(at(left[k & 1] + t % 16 * 48 + t / 16 * 16)) : "memory");
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(y[0]), "=r"(y[1])
      : "r"(at(right[k & 1] + t % 8 * 48 + t / 8 % 2 * 16)) : "memory");
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    __syncthreads();
  }
  for (int n = 0; n < 4; ++n) c[(t / 4 + n / 2 * 8) * 8 + t % 4 * 2 + n % 2] = sum[n];
}
"""


def product(source: str) -> None:
    a, b = (RANDOM.integers(-128, 128, (n, 128), np.int8) for n in (16, 8))
    c, memory = np.zeros((16, 8), np.int32), Memory(count_transactions=True)
    given = [memory.give(x) for x in (a, b, c)]
    launch(parse(nvrtc.compile_source(source).decode())["work"], 1, 32, given, memory)
    memory.take(given[2], c)
    np.testing.assert_array_equal(c, a.astype(np.int32) @ b.T.astype(np.int32))
    copied = 4 * (
        4 + 2
    )  # of every 128 bytes, which are four rows, the last lies over the banks of the first
    assert memory.statistics["bank conflicts"] == copied, (
        "none of ldmatrix, whose eight rows of 16 bytes fill the banks"
    )


@needs_nvrtc
def test_a_pipelined_product_on_tensor_cores() -> None:
    """Two stages of copies, fragments by ldmatrix: the product is that of NumPy."""
    product(PRODUCT)


@needs_nvrtc
@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("wait_group 1", "wait_group 2", "ldmatrix.*before cp.async.wait_group"),
        ("wait_group 0", "wait_group 1", "ldmatrix.*before cp.async.wait_group"),
        (
            "__syncthreads();\n    unsigned",
            "unsigned",
            "ldmatrix.*another wrote since the last barrier",
        ),
        ("__syncthreads();\n  }", "}", "cp.async.*another read since the last barrier"),
        (
            "if (k < 3) fetch",
            "fetch",
            "outside of its array|writes shared memory that another read",
        ),
        (
            "__syncthreads();\n    unsigned",
            "if (t < 16) __syncthreads();\n    unsigned",
            "without all of its threads",
        ),
    ],
)
def test_mistakes_in_a_pipeline_are_found(old: str, new: str, fault: str) -> None:
    assert old in PRODUCT
    with pytest.raises(Fault, match=f"^work, line .*{fault}"):
        product(PRODUCT.replace(old, new))


def test_directed_rounding_is_to_the_next_number_on_its_side() -> None:
    x = np.concatenate(
        [RANDOM.normal(size=99), RANDOM.normal(size=99) * 1e6, [1.5, -1.5, 2.0**-160, -(2.0**-160)]]
    )
    down, up = (narrowed(x, np.dtype(np.float32), r) for r in ("rm", "rp"))
    assert (down <= x).all() and (x <= up).all()
    exact = x == x.astype(np.float32)
    np.testing.assert_array_equal(up, np.where(exact, down, np.nextafter(down, np.float32(np.inf))))
    np.testing.assert_array_equal(
        narrowed(x, np.dtype(np.float32), "rz"), np.where(x < 0, up, down)
    )


# Races in global memory

LAST = r"""
extern "C" __global__ void work(const int* __restrict__ a, int* parts, unsigned* count, int* sum) {
  __shared__ bool last;
  int b = blockIdx.x, t = threadIdx.x, each = gridDim.x / blockDim.x;
  for (int n = t; n < 1; n += 32) parts[b] = a[b] * 2;
  if (t == 0) {
    __threadfence();
    last = atomicAdd(count, 1u) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (last) {
    int mine = 0;
    for (int n = 0; n < each; ++n) mine += parts[t * each + n];
    for (int n = 16; n; n /= 2) mine += __shfl_xor_sync(-1, mine, n);
    if (t == 0) *sum = mine;
    if (t == 0) *count = 0;
  }
}
"""


def last_block(source: str, blocks: int = 64) -> None:
    """Each block doubles a number, and the one that comes last adds them."""
    a, rest = (
        RANDOM.integers(-1000, 1000, blocks, np.int32),
        [np.zeros(n, np.int32) for n in (blocks, 1, 1)],
    )
    memory = Memory()
    given = [memory.give(x) for x in (a, *rest)]
    for _ in range(2):  # launches, whose accesses are ordered
        launch(parse(nvrtc.compile_source(source).decode())["work"], blocks, 32, given, memory)
    memory.take(given[3], rest[2])
    assert rest[2][0] == 2 * a.sum()


@needs_nvrtc
@pytest.mark.parametrize("blocks", [64, 2048])
def test_the_last_block_reads_what_the_others_wrote(blocks: int) -> None:
    """One of a grid that runs together, and one of a grid that runs in parts."""
    last_block(LAST, blocks)


FENCE, FLAG = "__threadfence();", "last = atomicAdd(count, 1u) == gridDim.x - 1;"


@needs_nvrtc
@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (
            f"{FENCE}\n    {FLAG}",
            FLAG,
            "ld.global.*reads global memory that one of another block wrote",
        ),
        (
            f"{FLAG}\n    {FENCE}",
            FLAG,
            "ld.global.*reads global memory that one of another block wrote",
        ),
        (
            f"{FENCE}\n    {FLAG}",
            f"{FLAG} {FENCE}",
            "ld.global.*one of another block wrote",
        ),  # the fence too late
        (FENCE, "__threadfence_block();", "ld.global.*one of another block wrote"),
        (
            FLAG,
            f"{FLAG} parts[b] = b;",
            "ld.global.*one of another block wrote",
        ),  # once the flag is set
        (
            FLAG,
            "last = (*count)++ == gridDim.x - 1;",
            "st.global.*writes global memory that one of another block read",
        ),
        (
            "if (t == 0) {",
            "if (b == 0) *count = 0;\n  if (t == 0) {",
            "one of another block|two threads",
        ),
        (
            "= a[b] * 2;",
            "= a[b] * 2;\n  parts[b / 2] = 0;",
            "global memory that .*wrote|two threads write",
        ),
        (
            "for (int n = t;",
            "for (int n = 0;",
            "ld.global.*one of another block wrote",
        ),  # of which one has a fence
        (
            "for (int n = t;",
            "parts[b] = t; for (int n = t;",
            "two threads write one place of global memory",
        ),
        (
            "__syncthreads();\n  if (last)",
            "if (atomicAdd(count, 0u) == gridDim.x)",
            "ld.global.*one of another block wrote",
        ),
    ],
)
def test_races_between_blocks_are_found(old: str, new: str, fault: str) -> None:
    assert old in LAST
    with pytest.raises(Fault, match=f"^work, line .*{fault}"):
        last_block(LAST.replace(old, new))


@needs_nvrtc
@pytest.mark.parametrize(
    ("value", "fault"), [("a[0]", None), ("a[0] + blockIdx.x / 63", "write|wrote")]
)
def test_stores_of_one_value_do_not_race(value: str, fault: str | None) -> None:
    """The last tile moves back over results of the one before, and computes them again."""
    source = (
        f'extern "C" __global__ void work(const int* __restrict__ a, int* y) {{ y[threadIdx.x] '
        f"= {value}; }}"
    )
    memory = Memory()
    given = [memory.give(np.full(32, 7, np.int32)), memory.give(np.zeros(32, np.int32))]
    with pytest.raises(Fault, match=fault) if fault else nullcontext():
        launch(parse(nvrtc.compile_source(source).decode())["work"], 64, 32, given, memory)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_multiply_add_of_zeros_has_the_sign_of_ieee(kind: type) -> None:
    zeros = np.array([0.0, -0.0, 1.5, -1.5], kind)
    a, b, c = (x.ravel() for x in np.meshgrid(zeros, zeros, zeros[:2]))
    wanted = a * b + c  # exact, so rounded once
    found = fma(a, b, c)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))
