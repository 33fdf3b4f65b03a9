"""LLVM is left as it was: what others compile in the same process does not change."""

from __future__ import annotations

import llvmlite.binding as llvm
from child_process import run_script
from cvm.jit.llvm import llvm_context

LOOP = """
define void @f(ptr %p, ptr %q, i64 %n) {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %head ]
  %a = mul nsw i64 %i, 12
  %at = getelementptr i8, ptr %p, i64 %a
  %x = load i32, ptr %at
  %b = mul nsw i64 %i, 20
  %to = getelementptr i8, ptr %q, i64 %b
  store i32 %x, ptr %to
  %next = add nsw i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %head, label %done
done:
  ret void
}
"""


PHIS = """
define i32 @f(i1 %c) {
entry:
  br i1 %c, label %yes, label %no
yes:
  br label %both
no:
  br label %both
both:
  %x = phi i32 [ 1, %yes ], [ 2, %no ]
  %y = add i32 %x, 40
  ret i32 %y
}
"""


def test_operations_on_phis_are_left_to_what_others_compile():
    def numbered() -> str:
        module, passes = llvm.parse_assembly(PHIS), llvm.create_new_module_pass_manager()
        passes.add_new_gvn_pass()
        passes.run(
            module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(3))
        )
        return str(module)

    machine = llvm_context.target_machine()
    before = numbered()
    assert "[ 41, %yes ]" in before
    with llvm_context.toolchain() as tools:
        tools.optimised(LOOP)
        assert numbered() == before
        with llvm_context.options_set():
            assert ("%y = add i32 %x, 40" in numbered()) == (
                llvm.llvm_version_info[0] <= llvm_context.LAST_LLVM
            )
    assert numbered() == before


def test_options_of_llvm_come_back():
    machine = llvm_context.target_machine()
    before = machine.emit_object(llvm.parse_assembly(LOOP))
    with llvm_context.toolchain() as tools:
        ours = tools.object_code(llvm.parse_assembly(LOOP))
        assert machine.emit_object(llvm.parse_assembly(LOOP)) == before
        assert (ours != before) == (llvm.llvm_version_info[0] <= llvm_context.LAST_LLVM)
        assert tools.object_code(llvm.parse_assembly(LOOP)) == ours


PIPELINES = """
import gc
from cvm.jit.llvm import llvm_context

def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * 4096

with llvm_context.toolchain() as tools:
    for n in range(150):
        if n == 50:
            before = resident()
        tools.optimised("define void @f() { ret void }", 'slp')
print(resident() - before)
"""


def test_pass_managers_of_a_pipeline_are_freed():
    """Those of 100 runs would be 5 MB. Of each run LLVM keeps 1.5 KB, the callbacks of its pass
    builder.
    """
    assert int(run_script(PIPELINES)) < 2_000_000


def test_threads_have_toolchains_of_their_own():
    with llvm_context.toolchain() as one:
        with llvm_context.toolchain() as other:
            assert one is not other and one.machine is not other.machine
        with llvm_context.toolchain() as again:
            assert again is other


def test_other_libraries_of_llvmlite_are_called_with_its_lock(monkeypatch):
    library = llvm_context.ffi.lib

    class Hidden:
        def __getattr__(self, name: str):
            if name in ("_name", "_handle"):
                raise AttributeError(name)
            return getattr(library, name)

    with llvm_context.toolchain() as tools:
        module = tools.optimised(LOOP)
        expected = tools.object_code(module)
        monkeypatch.setattr(llvm_context.ffi, "lib", Hidden())
        llvm_context._unlocked.cache_clear()
        try:
            assert llvm_context._unlocked("LLVMPY_ParseAssembly") is library.LLVMPY_ParseAssembly
            assert tools.object_code(tools.optimised(LOOP)) == expected
        finally:
            llvm_context._unlocked.cache_clear()
