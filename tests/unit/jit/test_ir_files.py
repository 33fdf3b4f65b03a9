"""Machine code in files of LLVM IR."""

import re
import tomllib
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from cvm.jit.llvm.ir_files import definitions, join_ir, read_ir
from cvm.jit.runtime import thread_pool

HOUSE = Path(__file__).parents[3]
FILES = sorted(path.relative_to(HOUSE / "jit").as_posix() for path in HOUSE.glob("jit/**/*.ll"))


@pytest.mark.parametrize("name", FILES)
def test_each_file_is_a_module(name):
    module = llvm.parse_assembly(read_ir(name), llvm.create_context())
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
