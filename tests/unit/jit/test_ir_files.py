"""Machine code in files of LLVM IR."""

import re
import tomllib
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from cvm.dialect.ir.deferred_size_limits import LARGEST
from cvm.jit.calls import kernel_table, pytree_form, vectorcall_ir as layout
from cvm.jit.llvm.ir_files import definitions, join_ir, read_ir
from cvm.jit.llvm.native_code import Library
from cvm.jit.runtime import thread_pool

HOUSE = Path(__file__).parents[3]
FILES = sorted(path.relative_to(HOUSE / "jit").as_posix() for path in HOUSE.glob("jit/**/*.ll"))
OF_CALLS = [name for name in FILES if name.startswith("calls/")]


@pytest.mark.parametrize("name", FILES)
def test_each_file_is_a_module(name):
    layouts = ["calls/objects.ll"] if name in OF_CALLS else []  # types that the others refer to
    text = join_ir(*map(read_ir, dict.fromkeys([*layouts, name])))
    module = llvm.parse_assembly(text, llvm.create_context())
    module.verify()
    assert any(not f.is_declaration for f in module.functions)


def test_wheels_have_the_files():
    data = tomllib.loads((HOUSE / "pyproject.toml").read_text())["tool"]["setuptools"]
    rooms = {Path(name).parent.as_posix() for name in FILES}
    assert rooms == {
        package.removeprefix("cvm.jit.").replace(".", "/")
        for package, patterns in data["package-data"].items()
        if "*.ll" in patterns
    }


@pytest.mark.parametrize(
    ("machine", "triple", "spins"),
    [("x86_64", "x86_64-linux-gnu", "pause"), ("aarch64", "aarch64-linux-gnu", "yield")],
)
def test_the_pool_is_assembled_for_other_processors(machine, triple, spins):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target = llvm.Target.from_triple(triple).create_target_machine()
    except RuntimeError:
        pytest.skip("LLVM is without this target")
    text = join_ir(
        read_ir("runtime/thread_pool.ll"),
        read_ir(thread_pool.MACHINES[machine]),
        thread_pool.use_default(thread_pool.register_of(machine)),
    )
    module = llvm.parse_assembly(text, llvm.create_context())
    module.verify()
    assert re.search(rf"^\s+{spins}\b", target.emit_assembly(module), re.MULTILINE)


def test_the_pool_has_the_limits_that_python_checks():
    text = read_ir("runtime/thread_pool.ll")
    assert f"@most_workers = private unnamed_addr constant i32 {thread_pool.MOST}\n" in text
    assert f"@allowed = global [{thread_pool.MASK} x i64]" in text
    assert f"icmp slt i64 %n, {64 * thread_pool.MASK} " in text


def test_joined_modules_declare_once_what_none_defines():
    a = "declare void @f()\ndeclare i32 @g(i32)\n@x = external global i8\n@y = global i8 0\n"
    b = "declare i32 @g(i32)\n@x = external global i8\ndefine void @f() {\n  ret void\n}\n"
    joined = join_ir(a, b)
    assert joined.count("@f") == joined.count("@g") == joined.count("@x") == 1
    llvm.parse_assembly(joined, llvm.create_context()).verify()
    assert definitions(a) == "@y = global i8 0\n"


def fields(name: str) -> dict[str, list[str]]:
    """The fields of each type of a file, which have their names in comments."""
    types = re.findall(r"^%(\w+) = type \{\n(.*?)^\}", read_ir(name), re.MULTILINE | re.DOTALL)
    return {type: re.findall(r"^[^;]*; +(\w+)", body, re.MULTILINE) for type, body in types}


def test_tables_have_the_fields_that_python_fills():
    types = fields("calls/vectorcall.ll")
    assert tuple(types["Way"]) == layout.WAY and tuple(types["Table"]) == layout.TABLE
    assert tuple(fields("calls/objects.ll")["Record"]) == layout.RECORD
    assert tuple(types["Shaped"]) == layout.SHAPED
    assert tuple(fields("calls/kernel_call.ll")["Versioned"]) == layout.VERSIONED


@pytest.mark.parametrize("name", OF_CALLS)
def test_addresses_of_fields_are_named_after_them(name):
    types = fields("calls/objects.ll") | fields(name)
    addresses = re.findall(
        r"%(\S+)\.at = getelementptr %(\w+), ptr %\S+, i32 0, i32 (\d+)$",
        read_ir(name),
        re.MULTILINE,
    )
    assert len(addresses) == read_ir(name).count("i32 0, i32 ") > 2
    assert [types[type][int(number)] for _, type, number in addresses] == [
        address.rpartition(".")[2] for address, _, _ in addresses
    ]


def test_objects_lie_as_python_expects():
    text = "".join(map(read_ir, OF_CALLS))
    types = {t: f for name in OF_CALLS for t, f in fields(name).items()}
    code = "\n".join(re.findall(r"^%\w+ = type \{\n.*?^\}", text, re.MULTILINE | re.DOTALL))
    for type, names in types.items():
        for n, name in enumerate(names):
            address = f"getelementptr (%{type}, ptr null, i32 0, i32 {n})"
            body = f"ret i32 ptrtoint (ptr {address} to i32)"
            code += f"\ndefine i32 @{type}.{name}() {{\n  {body}\n}}"
    library = Library(code, dict.fromkeys(re.findall(r"i32 @([\w.]+)\(", code), ()))

    def place(type: str, field: str) -> int:
        return library.functions[f"{type}.{field}"]()

    array = ("data", "rank", "shape", "descriptor", "flags")
    assert [place("Array", field) for field in array] == [
        layout.DATA, layout.RANK, layout.SHAPE, layout.DESCRIPTOR, layout.FLAGS,
    ]  # fmt: skip
    assert place("Descriptor", "element") == layout.ELEMENT
    assert (place("Object", "code"), place("Object", "way")) == (layout.HEAD, layout.HEAD + 8)
    for type in types.keys() - {"Array", "Descriptor", "List", "Object", "Tuple"}:
        assert [place(type, field) for field in types[type]] == [
            8 * n for n in range(len(types[type]))
        ]


def test_numbers_are_those_of_python():
    text = read_ir("calls/vectorcall.ll")
    usual = layout.CONTIGUOUS | layout.ALIGNED
    for number in (usual, usual | layout.WRITEABLE):
        assert text.count(f"i32 u0x{number:X}\n") == 1
    assert text.count(f"i64 {-layout.BUSY}\n") == text.count(f" {LARGEST}  ; LARGEST") == 1
    jumps = re.findall(r"^    i64 (\d+), label %(\w+)$", text, re.MULTILINE)
    labels = "store size sum product quotient most least equal unequal less not_less address"
    assert jumps == [(str(n), label) for n, label in enumerate(labels.split()[:-1])]
    assert len(layout.STEPS) == len(labels.split())
    of_kernels = read_ir("calls/kernel_call.ll")
    assert of_kernels.count("  ; LARGEST") == of_kernels.count(f" {kernel_table.LARGEST}  ; L") == 3
    assert of_kernels.count(f" {2 * kernel_table.LARGEST}\n") == 1
    assert of_kernels.count(f"u0x{layout.WRITEABLE:X}  ; WRITEABLE") == 2
    result = re.search(r"^%Result = type.*?; kind: (.*?)\n", of_kernels, re.MULTILINE | re.DOTALL)
    assert result is not None and [int(n) for n in re.findall(r"\d", result[1])] == [*range(7)]
    kinds = re.findall(r"^;   (\d) .*?([A-Z]{4,})", read_ir("calls/pytree.ll"), re.MULTILINE)
    assert [getattr(pytree_form, name) for _, name in kinds] == [int(n) for n, _ in kinds]
    assert len(kinds) == 5
