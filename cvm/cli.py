"""The command `cvm`: dispatch to a command, and errors as messages with an exit status.

0 is success, 1 a rejected or failed program, 2 a wrong command line.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib import import_module
from typing import Any, NoReturn

import cvm
from cvm.dialect.ir import limits

LEVELS = (0, 2)  # of optimization
EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": (
        "run layer.cvm --random-inputs 0 --time",
        "run layer.cvm --input 'x=[[1,2,3],[4,5,6]]' --output y.csv",
        "run life.cvm --steps 100 --plot life.gif",
    ),
    "check": (
        "check layer.cvm --overflow",
        "check *.cvm --werror --format sarif > found.sarif",
        "check model.tflite --exact-as tflite-reference -o cert.json",
    ),
    "verify": ("verify cert.json model.tflite --target cuda-sim",),
    "explain": ("explain cvm.dense.C2", "explain parse.brace"),
    "lower": ("lower layer.cvm --to loops", "lower layer.cvm --to strategies --cpu znver4"),
    "opt": ("opt layer.cvm --pipeline canonicalize,cse,fuse", "opt layer.cvm --target cuda --print-after-all"),
    "cost": ("cost layer.cvm --size N=64", "cost layer.cvm --size N=64 -o roofline.svg"),
    "build": ("build layer.cvm --size N=16 -o layer.so --header layer.h",),
    "import": ("import model.onnx --size N=1 -o model.cvm",),
    "test": ("test tests", "test tests --bless"),
    "ops": ("ops cvm", "ops cvm.conv2d"),
    "completion": ("completion bash > ~/.local/share/bash-completion/completions/cvm",),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit status; `argv` is that of the process unless given."""
    if argv is None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends native code at once, too
    if sys.stdout is None:  # closed by the parent process
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # a terminal that cannot show a character is no reason to fail
    try:
        options = parser().parse_args(argv)
        _load(options.load)
        with within(options.limits), for_cpu(getattr(options, "cpu", None), getattr(options, "triple", "")):
            status = options.command(options)
        sys.stdout.flush()
        return status
    except SystemExit as e:  # from argparse: help, version or a usage error
        return e.code if isinstance(e.code, int) else 2
    except Usage as e:
        return _say(f"cvm: {e}", 2)
    except cvm.Error as e:
        return report(e)
    except OSError as e:  # a full disk, or a closed pipe
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1 if isinstance(e, BrokenPipeError) else _say(f"cvm: {e.strerror or e}", 1)
    except KeyboardInterrupt:
        return _say("cvm: interrupted", 1)
    except MemoryError as e:
        return _say(f"cvm: out of memory{f': {e}' if str(e) else ''}", 1)
    except Exception as e:
        if os.environ.get("CVM_TRACEBACK") == "1":
            raise
        return _say(
            f"cvm: internal error: {type(e).__name__}: {e}\nplease report this, with what CVM_TRACEBACK=1 adds", 1
        )


def _load(modules: Sequence[str]) -> None:
    """Imports modules of other packages, or of the current folder."""
    if modules:
        from cvm.dialect.ir.extensions import load_module

        sys.path.insert(0, os.getcwd())
        for module in modules:
            load_module(module)


def for_cpu(name: str | None, triple: str = "") -> AbstractContextManager[None]:
    """Compiles for the processor of this name meanwhile."""
    if name is None and not triple:
        return nullcontext()
    from cvm.jit.host_processor import resolve
    from cvm.lowering.processor import compiling_for

    try:
        return compiling_for(resolve(name, triple))
    except cvm.TargetError as e:
        raise Usage(f"--cpu: {e.diagnostics[0].message}") from None


def within(text: str) -> AbstractContextManager[object]:
    """The limits that `--limits` states meanwhile."""
    try:
        return limits.limited(**limits.limits_of(text)) if text else nullcontext()
    except ValueError as e:
        raise Usage(f"--limits {text}: {e}") from None


class Usage(Exception):
    """A wrong command line."""


def report(error: cvm.Error) -> int:
    """Prints the diagnostics and their count."""
    from cvm.diagnostic_output import show

    show(error.diagnostics, "error")
    return 1


def _say(message: str, status: int) -> int:
    print(message, file=sys.stderr)
    return status


class _Parser(argparse.ArgumentParser):
    """Suggests the command or flag that a wrong word may mean."""

    def error(self, message: str) -> NoReturn:
        from cvm.dialect.ir.suggest import did_you_mean

        word = re.search(r"invalid choice: '([^']*)'|unrecognized arguments: (-[^\s=]*)", message)
        if word is not None:
            commands = [a for a in self._actions if isinstance(a, argparse._SubParsersAction)]
            known = {n: p for c in commands for n, p in c.choices.items()}
            flags = [f for p in (self, *known.values()) for a in p._actions for f in a.option_strings]
            message += did_you_mean(word[1], known) if word[1] is not None else did_you_mean(word[2], flags)
        super().error(message)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = _Parser(
        prog="cvm",
        description="Runs, checks, tests, shows and formats tensor programs. A file named - is standard input or output.",
    )
    top.add_argument("--version", action="version", version=f"cvm {cvm.__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for add in (
        _run,
        _check,
        _verify,
        _opt,
        _lower,
        _build,
        _viz,
        _import,
        _ops,
        _explain,
        _fmt,
        _test,
        _doctor,
        _cache,
        _completion,
        _new,
        _diff,
        _reduce,
        _lsp,
        _cost,
    ):
        add(commands)
    return top


def _command(commands: Any, name: str, help: str, function: str = "") -> argparse.ArgumentParser:
    """A command, which is the function of that name in the module of that name, imported when it is used."""

    def command(options: argparse.Namespace) -> int:
        wanted = function or name
        found: Callable[[argparse.Namespace], int] = getattr(import_module(f"cvm.commands.{wanted}"), wanted)
        return found(options)

    examples = "".join(f"\n  cvm {line}" for line in EXAMPLES.get(name, ()))
    made: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help,
        description=help[0].upper() + help[1:] + ".",
        epilog=f"examples:{examples}" if examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.set_defaults(command=command)
    text = "import a Python module first, which declares operators, passes, targets or importers"
    made.add_argument("--load", action="append", default=[], metavar="MODULE", help=text)
    text = f"other limits on programs than the defaults, of {', '.join(limits.NAMES)}"
    made.add_argument("--limits", default="", metavar="NAME=VALUE,...", help=text)
    return made


def _doctor(commands: Any) -> None:
    _command(commands, "doctor", "show versions, processor, targets, cache and extras, and how to get what is missing")


def _cache(commands: Any) -> None:
    cache = _command(commands, "cache", "show or empty the disk cache of compiled code")
    cache.add_argument("action", choices=("info", "clear"))


def _lsp(commands: Any) -> None:
    _command(commands, "lsp", "serve an editor: diagnostics, types, operators' pages, completion, renaming (pygls)")


def _completion(commands: Any) -> None:
    made = _command(commands, "completion", "print a script that completes commands and flags in a shell")
    made.add_argument("shell", choices=("bash", "zsh", "tcsh"))


def _optimization(command: argparse.ArgumentParser) -> None:
    """The level of optimization, of a command that compiles."""
    text = "0 compiles one scalar loop nest for each operation, 2 optimizes (default: %(default)s)"
    command.add_argument("-O", type=int, choices=LEVELS, default=2, dest="optimize", metavar="LEVEL", help=text)


def _run(commands: Any) -> None:
    array = "an argument's array: a file (.npy, .csv, .png, .jpg), or numbers such as 3 or [[1,2],[3,4]]"
    run = _command(commands, "run", "run a function or a graph of a program, or kernels, and show what it gives")
    run.add_argument("program", metavar="PROG.cvm", help="a program, or kernels as lower --to loops shows them")
    run.add_argument("--entry", default="main", metavar="NAME", help="the function (default: %(default)s)")
    run.add_argument("--target", default="cpu", metavar="TARGET", help="cpu (the default), reference, cuda or cuda-sim")
    run.add_argument("--cpu", metavar="NAME", help="the processor that the code is for, such as x86-64-v3 or native")
    _optimization(run)
    run.add_argument("--input", action="append", default=[], metavar="NAME=ARRAY", help=array)
    run.add_argument("--inputs", metavar="FILE.npz", help="arrays by the arguments' names")
    run.add_argument(
        "--random-inputs", type=int, metavar="SEED", help="random arrays for arguments not given otherwise"
    )
    run.add_argument("--output", metavar="FILE", help="write the results: all to an .npz, one to an .npy, .csv or .png")
    run.add_argument("--threads", type=int, metavar="N", help="how many threads run large loops")
    run.add_argument(
        "--profile", action="store_true", help="show how long each kernel takes, and what it moves and does"
    )
    run.add_argument("--time", action="store_true", help="show how long compiling and running take")
    run.add_argument(
        "--digest",
        action="store_true",
        help="show a SHA-256 digest of each result: of its type, as text, and its bytes",
    )
    run.add_argument("--plot", metavar="FILE.png|.gif", help="draw the results, with matplotlib; a .gif moves")
    clocked = run.add_argument_group(
        "graphs", "--input then names a field or sensor, of which an array may hold a value per tick"
    )
    clocked.add_argument("--steps", type=int, metavar="N", help="how many ticks (default: 1)")
    clocked.add_argument("--read", action="append", metavar="NAME", help="what to show (default: all that has a name)")
    clocked.add_argument("--every", type=int, metavar="K", help="show it every K ticks, and --output all of it")
    clocked.add_argument("--save-state", metavar="FILE", help="write the state afterwards")
    clocked.add_argument("--load-state", metavar="FILE", help="start from a state that was written")


def _check(commands: Any) -> None:
    check = _command(commands, "check", "parse and verify programs, and say every mistake")
    check.add_argument("programs", nargs="+", metavar="PROG.cvm")
    check.add_argument(
        "--overflow",
        action="store_true",
        help="also say where integers may leave their type; exit status 1 where they may",
    )
    check.add_argument("--werror", action="store_true", help="exit status 1 also where there are warnings")
    check.add_argument(
        "--format", choices=("text", "json", "sarif"), default="text", help="of what is found (default: %(default)s)"
    )

    text = "of imported models: say how exact each operator is, as tflite-reference, tosa or onnxruntime; exit status 1 where one is bounded"
    check.add_argument("--exact-as", metavar="REFERENCE", help=text)
    check.add_argument("-o", "--output", metavar="CERT.json", help="write the certificate of a model, for verify")


def _verify(commands: Any) -> None:
    verify = _command(commands, "verify", "check a certificate of exactness: the program, the verdicts and the results")
    verify.add_argument("certificate", metavar="CERT.json")
    verify.add_argument("model", metavar="MODEL", help="the .tflite, .tosa or .onnx file that it is of")
    verify.add_argument(
        "--target", default="cpu", metavar="TARGET", help="cpu (the default), reference, cuda or cuda-sim"
    )
    verify.add_argument("--cpu", metavar="NAME", help="the processor that the code is for, such as x86-64-v3 or native")


def _opt(commands: Any) -> None:
    opt = _command(commands, "opt", "apply passes to a program and show what they make of it")
    opt.add_argument(
        "program", metavar="PROG.cvm", nargs="?", help="a program, or kernels as lower --to loops shows them"
    )
    opt.add_argument(
        "--pipeline",
        default="",
        metavar="PASS,...",
        help='passes, in order, such as "canonicalize,fuse,unroll{factor=4}"',
    )
    opt.add_argument(
        "--target",
        choices=("cpu", "cuda"),
        help="all passes for this target; with --pipeline, its passes of these names",
    )
    for when in ("before", "after"):
        opt.add_argument(
            f"--print-{when}-all", action="store_true", help=f"show the program {when} each pass, on standard error"
        )
        opt.add_argument(
            f"--print-{when}", action="append", default=[], metavar="PASS", help=f"show the program {when} this pass"
        )
    opt.add_argument("--print-changed", action="store_true", help="show what each pass changes, as a unified diff")
    opt.add_argument("--verify-each", action="store_true", help="verify the program after each pass")
    opt.add_argument("--cpu", metavar="NAME", help="the processor that the code is for, such as x86-64-v3 or native")
    opt.add_argument(
        "--timing",
        nargs="?",
        const="tree",
        choices=("tree", "json"),
        help="show how long each pass takes, on standard error, as a tree or in JSON",
    )
    opt.add_argument(
        "--run-reproducer", action="store_true", help="the program is a reproducer, which a pass that failed has left"
    )
    opt.add_argument("--generic", action="store_true", help="MLIR's generic form")
    opt.add_argument("--list", action="store_true", help="list the passes")
    opt.add_argument("-o", "--output", default="-", metavar="FILE", help="where to write it (default: standard output)")


def _lower(commands: Any) -> None:
    lower = _command(commands, "lower", "show a program at a stage of its compilation")
    lower.add_argument("program", metavar="PROG.cvm")
    lower.add_argument(
        "--to",
        default="formulas",
        metavar="STAGE",
        help="graph, mlir, formulas (the default), loops, strategies, schedule, llvm, llvm-opt, asm, cuda or ptx",
    )
    lower.add_argument("--entry", default="main", metavar="NAME", help="the function (default: %(default)s)")
    lower.add_argument("--cpu", metavar="NAME", help="the processor that the code is for, such as x86-64-v3 or native")
    _optimization(lower)
    lower.add_argument(
        "--ranges", action="store_true", help="with --to graph: say in comments from where to where integers go"
    )
    lower.add_argument(
        "-o", "--output", default="-", metavar="FILE", help="where to write it (default: standard output)"
    )


def _build(commands: Any) -> None:
    build = _command(commands, "build", "compile functions ahead of time, for C code to call")
    build.add_argument("program", metavar="PROG.cvm")
    build.add_argument("--entry", action="append", metavar="NAME", help="a function (default: main); may be repeated")
    _optimization(build)
    build.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="an object file, .o, or a shared library, .so"
    )
    build.add_argument(
        "--size", action="append", default=[], metavar="NAME=N", help="the value of a size that the program leaves open"
    )
    build.add_argument("--cpu", metavar="NAME", help="the processor that the code is for, such as x86-64-v3 or native")
    build.add_argument(
        "--triple", default="", metavar="TRIPLE", help="the system that the code is for, such as aarch64-linux-gnu"
    )
    build.add_argument("--header", metavar="FILE.h", help="write the C header, too")
    text = "refuse a model of which an operator is only within a bound of tflite-reference, tosa or onnxruntime"
    build.add_argument("--require-exact", metavar="REFERENCE", help=text)


def _viz(commands: Any) -> None:
    viz = _command(commands, "viz", "draw the operations of a program")
    viz.add_argument("program", metavar="PROG.cvm")
    viz.add_argument("--entry", action="append", metavar="NAME", help="a function (default: all); may be repeated")
    viz.add_argument("-o", "--output", required=True, metavar="FILE", help="a picture, .svg, or a page, .html")


def _import(commands: Any) -> None:
    made = _command(
        commands, "import", "make a program of a model of CVM-Runtime, ONNX, TensorFlow Lite or TOSA", "importing"
    )
    made.add_argument("model", metavar="MODEL", help="a folder with symbol and params, an .onnx, .tflite or .tosa file")
    made.add_argument(
        "-o",
        "--output",
        default="-",
        metavar="PROG.cvm",
        help="where to write it, its constants beside it in an .npz (default: standard output, constants and all)",
    )
    size = "a size of a model's inputs: N=1 (ONNX), or of all of an input, image=1,3,224,224; may be repeated"
    made.add_argument("--size", action="append", default=[], metavar="NAME=SIZE", help=size)
    constant = "an input of an ONNX model that becomes a constant: axes=[0,2] or table=FILE.npy; may be repeated"
    made.add_argument("--constant", action="append", default=[], metavar="NAME=VALUE", help=constant)
    rounding = "how a .tflite model rounds scaled sums: tflite_double (default, the reference kernels'), or single"
    made.add_argument("--rounding", choices=("tflite_double", "single"), help=rounding)


def _ops(commands: Any) -> None:
    ops = _command(commands, "ops", "list the operators, or show the page of one")
    ops.add_argument("name", nargs="?", metavar="DIALECT[.OP]")
    ops.add_argument("--check", action="store_true", help="run their examples on every target and compare the results")


def _explain(commands: Any) -> None:
    explain = _command(commands, "explain", "show the rule of a diagnostic, with a wrong and a right program")
    explain.add_argument("code", metavar="CODE", help="what stands in brackets after error, such as cvm.dense.C2")


def _fmt(commands: Any) -> None:
    fmt = _command(commands, "fmt", "rewrite programs in the usual layout")
    fmt.add_argument("programs", nargs="+", metavar="PROG.cvm")
    fmt.add_argument("--check", action="store_true", help="change nothing; exit status 1 where something would change")


def _test(commands: Any) -> None:
    test = _command(commands, "test", "run the `// test` lines of .cvm files")
    test.add_argument("paths", nargs="+", metavar="DIR|FILE")
    test.add_argument(
        "--bless", action="store_true", help="write what they print into their golden lines (also: CVM_BLESS=1)"
    )


def _new(commands: Any) -> None:
    new = _command(commands, "new", "write the skeleton of a package that extends cvm")
    new.add_argument("what", choices=("dialect",))
    new.add_argument("name", metavar="NAME", help="the dialect's name; the package is NAME_dialect")
    new.add_argument("-o", "--output", metavar="DIR", help="the folder (default: NAME_dialect)")


def _diff(commands: Any) -> None:
    diff = _command(
        commands, "diff", "find the first operation whose values differ between two targets, programs or pipelines"
    )
    diff.add_argument("a", metavar="A.cvm")
    diff.add_argument("b", nargs="?", metavar="B.cvm|B.npz", help="another program, or saved values by their names")
    diff.add_argument("--entry", default="main", metavar="NAME", help="the function (default: %(default)s)")
    twice = "of A, and given again of B (default: cpu and reference, where nothing else differs)"
    diff.add_argument("--target", action="append", default=[], metavar="TARGET", help=f"the target {twice}")
    diff.add_argument(
        "--pipeline", action="append", default=[], metavar="PASS,...", help="the passes of A, and given again of B"
    )
    diff.add_argument("--ulps", type=int, default=0, metavar="N", help="how far apart equal floats may be (default: 0)")
    diff.add_argument("--input", action="append", default=[], metavar="NAME=FILE.npy", help="an argument's array")
    diff.add_argument("--inputs", metavar="FILE.npz", help="arrays by the arguments' names")
    diff.add_argument("--random-inputs", type=int, metavar="SEED", help="random arrays of this seed for the others")
    diff.add_argument(
        "--seeds", type=int, default=10, metavar="N", help="how many seeds are tried otherwise (default: 10)"
    )


def _reduce(commands: Any) -> None:
    reduce = _command(commands, "reduce", "shrink a program on which a command fails")
    reduce.add_argument("program", metavar="PROG.cvm")
    text = "a command that fails on the program, whose path takes the place of {}, or comes last"
    reduce.add_argument("--test", required=True, metavar="CMD", help=text)
    reduce.add_argument(
        "--expect", default="", metavar="TEXT", help="what the command prints when it fails as it should"
    )
    reduce.add_argument(
        "--timeout", type=float, default=60, metavar="SECONDS", help="of the command (default: %(default)s)"
    )
    reduce.add_argument(
        "-o", "--output", default="-", metavar="FILE", help="where to write it (default: standard output)"
    )


def _cost(commands: Any) -> None:
    cost = _command(commands, "cost", "count the operations and bytes of a call, against what this machine can do")
    cost.add_argument("program", metavar="PROG.cvm", help="a program, or kernels")
    cost.add_argument("--entry", default="main", metavar="NAME", help="the function (default: %(default)s)")
    cost.add_argument("--cpu", metavar="NAME", help="the processor that the code is for, such as x86-64-v3 or native")
    _optimization(cost)
    cost.add_argument("--size", action="append", default=[], metavar="NAME=N", help="an unknown size; 1 by default")
    cost.add_argument("--json", action="store_true", help="print the counts in JSON")
    cost.add_argument("-o", "--output", metavar="FILE", help="the roofline, .svg, or a page with the counts, .html")
