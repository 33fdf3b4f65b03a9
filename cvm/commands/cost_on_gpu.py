"""`cvm cost --target cuda`: what each kernel asks of a GPU, counted by the emulator, and how long a
model of the machines says that it takes at least. The model was not checked on a device.
"""

import json
from argparse import Namespace
from typing import Any

from cvm.jit.cuda.gpu_cost_model import LAUNCH, MEMORY, SECTOR, WARP, resources
from cvm.jit.options import CompileOptions
from cvm.terminal.arguments import random_arrays
from cvm.terminal.display import columns
from cvm.terminal.read_program import Level, compiled, parsed_sizes


def cost_on_gpu(program: Level, options: Namespace) -> int:
    f = compiled(program, options.entry, "cuda-sim", CompileOptions(options.optimize))
    f = f.function(f.clockwork.advance) if hasattr(f, "clockwork") else f  # a tick
    rows = predictions(f, parsed_sizes(options.size))
    if options.json:
        print(json.dumps({"checked": False, "kernels": rows}, indent=1))
        return 0
    head = "limit", "HBM bytes", "L2 bytes", "conflicts", "instructions", "barriers", "kernel"
    lines: list[tuple[str, ...]] = [(*(f"{device} us" for device in MEMORY), *head)]
    for row in rows:
        counts, times = row["counts"], (f"{1e6 * row['seconds'][device]:.2f}" for device in MEMORY)
        issued, came = (
            sum(n for i, n in counts.items() if i.startswith(w)) for w in ("issued.", "issued.bar.")
        )
        moved = row["bytes"], SECTOR * (counts["load sectors"] + counts["store sectors"])
        numbers = *moved, counts["bank conflicts"], issued, came // -(-row["threads"] // WARP)
        name = f"{row['name']}{f' x {n}' if (n := row['launches']) > 1 else ''}"
        limits = dict.fromkeys(max(spent, key=spent.get) for spent in row["resources"].values())
        lines.append((*times, " / ".join(limits), *(f"{n:,}" for n in numbers), name))
    print("\n".join(columns(lines, ">><>>>>><")))
    print(
        f"a launch by itself takes {LAUNCH * 1e6:g} us; all times are at least, of a model "
        "not checked on a device"
    )
    return 0


def predictions(f: Any, sizes: dict[str, int]) -> list[dict[str, Any]]:
    """The launches and counts of each kernel of a call with random arguments, and of each device
    the seconds of a launch, and those that each resource is busy.
    """
    f.cost(**sizes)  # which refuses sizes that no argument has
    known = {
        d.name: 1 for t in f.head.argument_types for d in t.array_shape if not isinstance(d, int)
    }
    rows: list[dict[str, Any]] = f.counted(random_arrays(f.function, 0, known | sizes))
    for row in rows:
        row["resources"] = busy = {
            d: resources(row["counts"], row["bytes"], row["blocks"], d) for d in MEMORY
        }
        row["seconds"] = {device: LAUNCH + max(spent.values()) for device, spent in busy.items()}
    return rows
