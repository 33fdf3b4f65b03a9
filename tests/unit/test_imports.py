"""Rooms import one way, packages are listed, and `import cvm` is light."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import cvm

ROOT = Path(__file__).parents[2]
# room: the rooms it may import beside itself, and the packages
MAY_IMPORT = {
    "grammar": ("", ""),
    "dialect": ("", "numpy"),
    "parser": ("grammar dialect", "lark numpy"),
    "lowering": ("dialect", "numpy"),
    "jit": ("lowering dialect", "numpy llvmlite"),
    "cvm": ("grammar dialect parser lowering jit", "numpy tqdm onnx"),
}
ALSO = {
    "dialect/types/tensor_types.py": "ml_dtypes",
    "jit/cuda/device.py": "pycuda",
    "cvm/terminal/plot.py": "matplotlib PIL",
    "cvm/terminal/plot_diagram.py": "matplotlib",
    "cvm/importers/tosa/text.py": "lark",
    "cvm/dask/__init__.py": "dask",
    "cvm/dask/graph.py": "dask",
    "cvm/terminal/arguments.py": "PIL",
    "cvm/commands/completion.py": "shtab",
    "cvm/highlight.py": "pygments",
    "cvm/language_server/server.py": "lsprotocol pygls",
    "cvm/proving/bit_vectors.py": "z3",
    "cvm/proving/division.py": "z3",
    "cvm/proving/equivalence.py": "z3",
    "cvm/proving/execution.py": "z3",
    "cvm/proving/meaning.py": "z3",
    "cvm/testing/pytest_plugin.py": "pytest",
}  # files that may import more
# rooms of a room, the lowest first: each imports those before it, also within functions, but for
# types
ORDER = {
    "dialect": "support types kernel_ir spec builtin ir cvm dali cog theano numpy quant",
    "lowering": "processor pass_context clocked_plan passes "
    "math analysis graph formulas loops layout "
    "contraction storage reductions gpu stepping scheduling mlir "
    "verify_passes pipeline explain_strategies operation_costs stages",
    "jit": "options host_processor targets cache llvm runtime calls c cuda functions compile "
    "source_cache aot",
    "cvm": "tracing numpy transforms dali theano ops kernels random importers terminal quantization scheduling testing proving dask extending highlight "
    "language_server commands cli __main__",
}


def imports(path: Path, types: bool = True, submodules: bool = False) -> Iterator[str]:
    """The modules a file imports, in full: relative ones with the package they stand in. Those for
    types alone may be left out; `submodules` gives what is imported from each by its name.
    """
    tree = ast.parse(path.read_text("utf-8"))
    if not types:
        tree.body = [
            s
            for s in tree.body
            if not (isinstance(s, ast.If) and ast.unparse(s.test) == "TYPE_CHECKING")
        ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            folder = ("cvm", *path.relative_to(ROOT).parts[: -node.level]) if node.level else ()
            parts = folder[1:] if folder[1:2] == ("cvm",) else folder
            module = ".".join([*parts, *([node.module] if node.module else [])])
            named = module == "cvm" or submodules
            yield from [f"{module}.{alias.name}" for alias in node.names] if named else [module]


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_rooms_import_one_way(room: str) -> None:
    rooms, packages = (set(names.split()) for names in MAY_IMPORT[room])
    for path in (ROOT / room).rglob("*.py"):
        more = set(ALSO.get(str(path.relative_to(ROOT)), "").split())
        for module in imports(path):
            top, _, rest = module.partition(".")
            if top == "cvm":
                found = rest.partition(".")[0]
                target = found if found in MAY_IMPORT else "cvm"
                assert target in {room, *rooms}, f"{path}: {room} does not import {module}"
            else:
                assert top in {*sys.stdlib_module_names, *packages, *more}, (
                    f"{path}: {room} does not import {module}"
                )


@pytest.mark.parametrize("room", ORDER)
def test_rooms_inside_a_room_import_one_way(room: str) -> None:
    rank = {name: n for n, name in enumerate(ORDER[room].split())}
    assert set(rank) == {
        p.stem for p in (ROOT / room).iterdir() if (p / "__init__.py").exists() or p.suffix == ".py"
    } - {"__init__"}
    package = "cvm." if room == "cvm" else f"cvm.{room}."
    for path in (ROOT / room).rglob("*.py"):
        own = path.relative_to(ROOT / room).parts[0].removesuffix(".py")
        for module in imports(path, types=False) if own != "__init__" else ():
            inside = module.removeprefix(package) if module.startswith(package) else ""
            other = inside.partition(".")[0]
            assert room == "cvm" or not inside or other in rank, f"{path}: {other} has no rank"
            assert rank.get(other, 0) <= rank[own], f"{path}: {own} does not import {other}"


FORMATS = ("onnx", "tflite", "tosa", "mlir", "cvm_runtime")


def test_the_importers_of_formats_share_a_core_alone() -> None:
    folder = ROOT / "cvm" / "importers"
    for path in folder.rglob("*.py"):
        own = path.relative_to(folder).parts[0].removesuffix(".py")
        for module in imports(path):
            other = module.removeprefix("cvm.importers.").partition(".")[0]
            allowed = other == own or own == "mlir_text"  # which tells TOSA's dialect from others
            assert other not in FORMATS or allowed, f"{path}: {own} does not import {other}"


PUBLIC = (
    "cvm.cli cvm.dali cvm.dask cvm.extending cvm.highlight cvm.testing.pytest_plugin cvm.theano"
)


@pytest.mark.parametrize("name", PUBLIC.split())
def test_public_modules_keep_their_places(name: str) -> None:
    pytest.importorskip({"cvm.dask": "dask", "cvm.highlight": "pygments"}.get(name, "cvm"))
    importlib.import_module(name)


def test_entry_points_are_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    groups = [project["scripts"], *project.get("entry-points", {}).values()]
    for place in [p for group in groups for p in group.values()]:
        module, _, name = place.partition(":")
        if module == "cvm.highlight":
            pytest.importorskip("pygments")
        assert not name or hasattr(importlib.import_module(module), name), place


BUILTIN = ("pad_slice_reshape", "view_bitcast")
TRACED = ("array_types", "diagnose", "element_methods", "reduction_methods", "shape_methods")
# (from, to): imports for types of one that holds the other, or makes it
TYPES_IN_CYCLES = {
    # the derivative rules of operators compute with nodes of programs, which hold operators
    ("cvm.dialect.spec.operator", "cvm.dialect.ir.builder"),
    ("cvm.dialect.spec.reshape_indexing", "cvm.dialect.ir.builder"),
    *((f"cvm.dialect.builtin.{m}", "cvm.dialect.ir.builder") for m in BUILTIN),
    # a vector access emits its operands by the emitter of expressions that holds it
    ("cvm.jit.llvm.vector_accesses", "cvm.jit.llvm.expressions"),
    # non-temporal stores are emitted for the emitter of kernels that holds them
    ("cvm.jit.llvm.emit_nontemporal_stores", "cvm.jit.llvm.kernels"),
    # a stepper advances the state of the clocked program that holds it
    ("cvm.jit.functions.steppers", "cvm.jit.functions.clocked_program"),
    # a target makes functions, clocked programs and steppers, which find targets by name
    ("cvm.jit.targets", "cvm.jit.functions.clocked_program"),
    ("cvm.jit.targets", "cvm.jit.functions.compiled_function"),
    ("cvm.jit.targets", "cvm.jit.functions.steppers"),
    ("cvm.jit.targets", "cvm.jit.functions.profile"),
    # the functions that kernels call build statements by the builder that calls them
    ("cvm.kernels.array_functions", "cvm.kernels.build"),
    ("cvm.kernels.calls", "cvm.kernels.build"),
    ("cvm.kernels.functions", "cvm.kernels.build"),
    ("cvm.kernels.iteration", "cvm.kernels.build"),
    ("cvm.kernels.parallel", "cvm.kernels.build"),
    # a traced array has its methods by mixins, which take and give traced arrays
    *((f"cvm.tracing.{m}", "cvm.tracing.trace") for m in TRACED),
    ("cvm.tracing.element_methods", "cvm.numpy.updates"),
}


def modules() -> dict[str, Path]:
    """The files of the package by the names of their modules, but for that of `cvm` itself."""
    found: dict[str, Path] = {}
    for room in MAY_IMPORT:
        for path in (ROOT / room).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            found[".".join(parts if parts[0] == "cvm" else ("cvm", *parts))] = path
    return {name: path for name, path in found.items() if name != "cvm"}


def dependencies(types: bool) -> dict[str, set[str]]:
    """The modules that each imports, also within functions: of a package, the modules named."""
    found = modules()
    needs: dict[str, set[str]] = {}
    for name, path in found.items():
        named = imports(path, types, submodules=True)
        origins = {m if m in found else m.rpartition(".")[0] for m in named}
        needs[name] = (origins & found.keys()) - {name}
    return needs


@pytest.mark.parametrize("types", [False, True], ids=["run time", "types"])
def test_modules_have_no_cycle(types: bool) -> None:
    remaining = dependencies(types)
    for importer, imported in TYPES_IN_CYCLES if types else ():
        remaining[importer].remove(imported)
    while ready := {m for m, needs in remaining.items() if not needs & remaining.keys()}:
        remaining = {m: needs for m, needs in remaining.items() if m not in ready}
    cycle = {m: sorted(needs & remaining.keys()) for m, needs in remaining.items()}
    assert not cycle, "\n".join(f"{m} imports {', '.join(needs)}" for m, needs in cycle.items())


def test_rooms_have_one_name() -> None:
    """Nothing imports a room as `dialect`, only as `cvm.dialect`: it would be there twice."""
    for folder in (*MAY_IMPORT, "tests", "examples", "benchmarks", "docs"):
        for path in (ROOT / folder).rglob("*.py"):
            bare = [m for m in imports(path) if m.partition(".")[0] in MAY_IMPORT.keys() - {"cvm"}]
            assert not bare, f"{path} imports {bare}"
    assert not MAY_IMPORT.keys() - {"cvm"} & sys.modules.keys()


def test_packages_are_listed() -> None:
    """The wheel has every folder of every room."""
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    folders = {
        p.parent.relative_to(ROOT).parts
        for room in MAY_IMPORT
        for p in (ROOT / room).rglob("__init__.py")
    }
    assert set(setup["packages"]) == {
        ".".join(f if f[0] == "cvm" else ("cvm", *f)) for f in folders
    }
    assert setup["package-dir"] == {
        "cvm": "cvm",
        **{f"cvm.{room}": room for room in MAY_IMPORT if room != "cvm"},
    }


@pytest.mark.parametrize("name", ["cvm", "setup", "tests", "examples", "docs.site"])
def test_only_the_rooms_of_a_checkout_belong_to_the_package(name: str) -> None:
    """A second copy of a module would have classes of its own."""
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"cvm.{name}")
    assert not hasattr(cvm, name.partition(".")[0])


def test_a_room_is_imported_from_the_package_by_name() -> None:
    code = (
        "from cvm import dialect, grammar, jit, lowering, parser; import cvm.jit; assert jit "
        "is cvm.jit"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        (
            "import cvm",
            "llvmlite lark pycuda argparse cvm.parser cvm.lowering cvm.jit "
            "cvm.dialect.spec.operator",
        ),
        (
            "import cvm; cvm.parse('func @main(%x: tensor<i32>) { %y = cvm.relu %x\\n return %y }')",
            "llvmlite lark pycuda cvm.lowering cvm.jit cvm.numpy.operator_functions "
            "cvm.dialect.dali cvm.dialect.theano",
        ),
        (
            "import cvm; cvm.compile('func @main() { return }', target='reference').lower('cuda')",
            "llvmlite pycuda",
        ),
        (
            "import cvm.testing.pytest_plugin",
            "numpy llvmlite lark cvm.parser cvm.lowering cvm.jit cvm.dialect.spec "
            "cvm.testing.commands",
        ),
        ("import cvm.cli; cvm.cli.parser()", "llvmlite lark pycuda cvm.parser cvm.jit"),
    ],
)
def test_what_is_imported(code: str, absent: str) -> None:
    """`import cvm` loads no heavy library; benchmarks/import_time.py measures its time."""
    listed = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert set(absent.split()).isdisjoint(listed)
