"""`cvm opt`: a program, or kernels, through passes chosen by name or by target, and the text of
what they make of it.
"""

import json
import sys
from argparse import Namespace
from pathlib import Path

from cvm.extending import register_rewrites
from cvm.lowering.passes import LEVELS, OPTIONS
from cvm.lowering.pipeline import (
    PIPELINES,
)
from cvm.scheduling import is_refusal, with_schedule
from cvm.terminal.files import read, write
from cvm.terminal.read_program import read_level
from cvm.terminal.run_pipeline import all_passes, check_pass_name, chosen_passes, text_after
from cvm.terminal.usage import Usage, for_cpu
from cvm.terminal.watch_passes import Watch, read_reproducer, write_reproducer


def opt(options: Namespace) -> int:
    if options.list:
        print("\n".join(listing()))
        return 0
    for path in options.rewrites:
        register_rewrites(path)
    if options.program is None:
        raise Usage("opt needs a program, or --list")
    data = read(options.program)
    pipeline, target, cpu = options.pipeline, options.target, options.cpu
    if options.run_reproducer:
        heads = read_reproducer(data.decode("utf-8", "replace"), options.program)
        pipeline, target, cpu = heads.get("pipeline", ""), heads.get("target"), heads.get("cpu")
    names = [p.name for p in chosen_passes(pipeline, target)]
    for flag, chosen in (
        ("--print-before", options.print_before),
        ("--print-after", options.print_after),
    ):
        for name in chosen:
            check_pass_name(name, "all")
            if name not in (*names, "all"):
                raise Usage(
                    f"{flag} {name}: the pipeline is {target or ','.join(names) or 'empty'}"
                )
    shown = {*options.print_before}, {*options.print_after}
    watch = Watch(*shown, options.print_changed, options.generic, options.verify_each)
    program = read_level(options.program, data)
    if options.schedule:
        program = with_schedule(program, options.entry, options.schedule)
    try:
        with for_cpu(cpu if options.run_reproducer else None):
            text = text_after(program, pipeline, target, watch)
    except Exception as e:
        if (
            watch.failed
            and not isinstance(e, Usage)
            and not is_refusal(e)
            and options.program != "-"
            and not options.run_reproducer
        ):
            path = Path(options.program).with_suffix(".reproducer.cvm")
            heads = {"pipeline": pipeline, "target": target or "", "cpu": cpu or ""}
            write_reproducer(path, data.decode("utf-8", "replace"), e, watch.failed, heads)
            loads = "".join(f"--load {module} " for module in options.load)
            loads += "".join(f"--rewrites {path} " for path in options.rewrites)
            said = (
                f"the pass {watch.failed} fails; cvm opt {loads}--run-reproducer {path} shows "
                "it again"
            )
            print(said, file=sys.stderr)
        raise
    if options.timing:
        times, tree = watch.timing, options.timing != "json"
        print(
            "\n".join(times.lines(times.seconds)) if tree else json.dumps(times.tree(), indent=1),
            file=sys.stderr,
        )
    write(options.output, text.encode())
    return 0


def listing() -> list[str]:
    """The passes with what they do, level by level, and the pipelines that have names."""
    lines: list[str] = []
    passes = all_passes()
    width = max(map(len, (*passes, *PIPELINES))) + 2
    for level in LEVELS:
        lines.append(f"{level}:")
        for p in passes.values():
            options = [
                f"{n}={str(v).lower()}" for n, v in p.options.items() if isinstance(v, OPTIONS)
            ]
            if p.level == level:
                lines.append(
                    f"  {p.name:{width}}{p.summary}"
                    + (f"  {{{','.join(options)}}}" if options else "")
                )
    lines.append("pipelines:")
    return [
        *lines,
        *(f"  {name:{width}}{', '.join(p.name for p in of)}" for name, of in PIPELINES.items()),
    ]
