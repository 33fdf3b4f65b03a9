"""A roofline model of GPUs: the least time of a kernel, from the emulator's counts, and the
resource that bounds it.

No figure was measured here, and no prediction was compared with a device: docs/gpu.md says how to.
Sources: [D] NVIDIA's data sheets of the H100 and H200 SXM (2023, 2024); [A] NVIDIA's A100 white
paper (2020), Hopper's not being published; [G] CUDA C++ Programming Guide 12, "Throughput of Native
Arithmetic Instructions", compute capability 9.0; [?] a guess.
"""

from collections import Counter

MEMORY = {"H100": 3.35e12, "H200": 4.8e12}  # bytes a second of HBM [D]
MULTIPROCESSORS, CLOCK = 132, 1.98e9  # [D]: 66.9e12 / (2 * 128 * 132), of the rate of floats
L2 = 5120  # bytes a clock [A]
LAUNCH = 2.5e-6  # seconds [?]
# Threads a clock and multiprocessor of each kind of unit [G]; i64 as two of i32; of tensor cores a
# warp's mma, 8192
# operations on bytes [D]; an instruction of a warp is issued by each of four schedulers.
RATES = {
    "f16": 256,
    "f32": 128,
    "f64": 64,
    "i32": 64,
    "i64": 32,
    "special": 16,
    "warp": 32,
    "memory": 32,
    "tensor": 32,
    "control": 128,
    "issue": 128,
}
UNITS = {  # and the instructions by name; the units of others are those of their type
    "memory": "ld st atom red cp ldmatrix",
    "warp": "shfl vote activemask",
    "tensor": "mma",
    "i32": "cvt",
    "special": "div sqrt rcp rsqrt ex2 lg2 sin cos tanh popc clz brev",
    "control": "bra ret exit bar barrier membar fence",
    "": "mov cvta",  # mostly no instruction of the machine
}
OF_NAME = {name: units for units, names in UNITS.items() for name in names.split()}
OF_TYPE = {"f64": "f64", "f32": "f32", "f16": "f16", "u64": "i64", "s64": "i64", "b64": "i64"}
WARP, SECTOR, ANSWER = (
    32,
    32,
    128,
)  # threads, and bytes of a sector and of a clock's answer of L1 or shared memory


def resources(counts: Counter[str], moved: int, blocks: int, device: str) -> dict[str, float]:
    """The seconds that each resource is busy with a launch of `blocks` blocks, where `counts` are
    the emulator's (`Memory.statistics`), and `moved` bytes go between HBM and L2.
    """
    units: Counter[str] = Counter()
    for name, n in counts.items():
        kind, *opcode = name.split(".")
        unit = (
            kind == "issued"
            and "param" not in opcode
            and OF_NAME.get(opcode[0], OF_TYPE.get(opcode[-1], "i32"))
        )
        units.update({unit: n * WARP, "issue": n * WARP} if unit else {})
    sectors = counts["load sectors"] + counts["store sectors"]
    answers = counts["shared answers"] + counts["bank conflicts"] + sectors * SECTOR / ANSWER
    most = -(-blocks // MULTIPROCESSORS)  # blocks of one multiprocessor
    clocks = CLOCK * blocks / most  # a second, of all multiprocessors that are busy
    outside = {"HBM": moved / MEMORY[device], "L2": sectors * SECTOR / (L2 * CLOCK)}
    return {
        **outside,
        "L1 and shared": answers / clocks,
        **{u: n / RATES[u] / clocks for u, n in units.items()},
    }
