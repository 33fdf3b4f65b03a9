"""`cvm build`: functions of a program to an object file or a shared library, and a C header."""

import shutil
import subprocess
import tempfile
from argparse import Namespace
from pathlib import Path

import cvm
from cvm.cli import Usage
from cvm.commands.io import load, write
from cvm.commands.levels import parsed_sizes
from cvm.dialect.ir.sizes import Size
from cvm.importers.exactness import require
from cvm.jit.options import CompileOptions

SHARED = (".so", ".dylib")
LINKERS = ("cc", "gcc", "clang", "ld.lld", "ld")


def build(options: Namespace) -> int:
    from cvm.jit import aot

    if (path := Path(options.output)).suffix not in (".o", *SHARED):
        raise Usage(f"-o is an object file, .o, or a shared library, {' or '.join(SHARED)}; got {options.output}")
    entries = options.entry or ["main"]
    module = load(options.program)
    if options.require_exact:
        require(module, options.require_exact)
    arguments = [a for name in entries if name in module.functions for a in module.functions[name].arguments]
    names = {d.name for a in arguments for d in a.known_type.array_shape if isinstance(d, Size)}
    sizes = parsed_sizes(options.size)
    for name, number in sizes.items():
        if arguments and name not in names:
            raise Usage(f"--size {name}={number}: no argument of @{', @'.join(entries)} has a size ?{name}")
    program = aot.build(module, entries, path.stem.removeprefix("lib"), sizes, CompileOptions(options.optimize))
    if path.suffix == ".o":
        write(options.output, program.image)
    else:
        _link(program.image, path)
    if options.header:
        write(options.header, program.header.encode())
    return 0


def _link(image: bytes, path: Path) -> None:
    """Link an object file to a shared library, with a linker of this machine."""
    if (linker := next(filter(None, map(shutil.which, LINKERS)), None)) is None:
        raise cvm.Error(
            f"a shared library needs a linker, and none of {', '.join(LINKERS)} is there; "
            f"-o {path.with_suffix('.o')} makes an object file without one"
        )
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "program.o"), Path(folder, "program.so")
        source.write_bytes(image)
        done = subprocess.run([linker, "-shared", "-o", target, source], capture_output=True, text=True)
        if done.returncode:
            raise cvm.Error(f"{linker} cannot make {path.name}:\n{done.stderr.rstrip()}")
        write(str(path), target.read_bytes())
