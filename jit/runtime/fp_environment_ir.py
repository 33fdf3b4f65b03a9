"""Emit LLVM IR that runs functions in the default floating-point environment.

The control register (MXCSR, FPCR) is read at entry; it is written, and restored, only if it differs
from the default. The read took 7 of the 120 nanoseconds of a call of a small function; a write
takes longer.
"""

import platform
from collections.abc import Sequence
from typing import NamedTuple


class ControlRegister(NamedTuple):
    """The IR that reads and writes the control register through the memory at %p, and the
    register's default value.
    """

    type: str
    read: str
    write: str
    control: int  # the bits that are not status flags
    default: int
    declarations: str


MXCSR = ControlRegister(
    "i32",
    "  call void @llvm.x86.sse.stmxcsr(ptr {p})",
    "  call void @llvm.x86.sse.ldmxcsr(ptr {p})",
    0xFFC0,
    0x1F80,  # all exceptions masked
    "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)\n",
)
FPCR = ControlRegister(
    "i64",
    "  {p}.read = call i64 @llvm.aarch64.get.fpcr()\n  store i64 {p}.read, ptr {p}",
    "  {p}.written = load i64, ptr {p}\n  call void @llvm.aarch64.set.fpcr(i64 {p}.written)",
    0xFFFFFFFF,
    0,
    "declare i64 @llvm.aarch64.get.fpcr()\ndeclare void @llvm.aarch64.set.fpcr(i64)\n",
)
REGISTERS = {"x86_64": MXCSR, "AMD64": MXCSR, "aarch64": FPCR, "arm64": FPCR}


def register_of(machine: str = "") -> ControlRegister | None:
    """The control register of a machine, by default this one; None of one that is not known."""
    return REGISTERS.get(machine or platform.machine())


def declarations(register: ControlRegister | None) -> str:
    """The declarations that a module with this register needs."""
    return register.declarations if register is not None else ""


def use_default(register: ControlRegister | None) -> str:
    """A module of @use_default_environment, after which a thread stays in the default
    environment.
    """
    body = ""
    if register is not None:
        body = f"""  %fp = alloca {register.type}
  store {register.type} {register.default}, ptr %fp
{register.write.format(p="%fp")}
"""
    head = "define internal void @use_default_environment() alwaysinline nounwind {\n"
    return f"{declarations(register)}{head}{body}  ret void\n}}\n"


def in_default_environment(
    head: str, callee: str, arguments: Sequence[str], register: ControlRegister | None
) -> str:
    """The definition of a function, with this head, that calls an i32 function in the default
    environment.
    """
    call = f"call i32 {callee}({', '.join(arguments)})"
    if register is None:
        return f"define {head} {{\n  %status = {call}\n  ret i32 %status\n}}\n"
    t = register.type
    return f"""define {head} {{
entry:
  %caller = alloca {t}
  %default = alloca {t}
{register.read.format(p="%caller")}
  %found = load {t}, ptr %caller
  %control = and {t} %found, {register.control}
  %usual = icmp eq {t} %control, {register.default}
  br i1 %usual, label %as_is, label %changed
as_is:
  %status = {call}
  ret i32 %status
changed:
  store {t} {register.default}, ptr %default
{register.write.format(p="%default")}
  %other = {call}
{register.write.format(p="%caller")}
  ret i32 %other
}}
"""
