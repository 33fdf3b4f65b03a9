"""The command line of `cvm`: commands with their options and examples, and its parser."""

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import cvm
from cvm.dialect.support import limits
from cvm.dialect.support.diagnostics import printable

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
    "tune": ("tune product.loops --seconds 60 --size M=512 -o product.schedule",),
    "lower": ("lower layer.cvm --to loops", "lower layer.cvm --to strategies --cpu znver4"),
    "opt": (
        "opt layer.cvm --pipeline canonicalize,cse,fuse",
        "opt layer.cvm --target cuda --print-after-all",
    ),
    "cost": ("cost layer.cvm --size N=64", "cost layer.cvm --size N=64 -o roofline.svg"),
    "build": (
        "build layer.cvm --size N=16 -o layer.so --header layer.h",
        "build digits.cvm --size N=1 --emit c --arena -o digits.c --header digits.h",
    ),
    "import": ("import model.onnx --size N=1 -o model.cvm",),
    "quantize": (
        "quantize model.onnx --data images.npz -o net.cvm --report net.html",
        "quantize layer.cvm --data x.npy --scheme cvm",
        "quantize layer.cvm --data x.npy --weight-bits 4 --weight-bits y=8",
        "quantize layer.cvm --data x.npy --within 1%",
    ),
    "test": ("test tests", "test tests --bless"),
    "prove": ("prove pair.cvm", "prove layer.cvm --pipeline canonicalize,fuse,rounding_shift"),
    "ops": ("ops cvm", "ops cvm.conv2d"),
    "selftest": ("selftest", "selftest --cpu x86-64-v3 --threads 1 --report > here.txt"),
    "completion": ("completion bash > ~/.local/share/bash-completion/completions/cvm",),
}
Argument = tuple[list[str], dict[str, Any]]


def _arg(names: str, help: str | None = None, **how: object) -> Argument:
    return names.split(), {"help": help, **how}


def _flag(name: str, help: str) -> Argument:
    return _arg(name, help, action="store_true")


def _repeated(name: str, metavar: str, help: str) -> Argument:
    return _arg(name, help, metavar=metavar, action="append", default=[])


def _all(dest: str) -> dict[str, Any]:
    return {"action": "append_const", "const": "all", "dest": dest, "default": []}


_OFFERS = "import a Python module first, which declares operators, passes, targets or importers"
_LOAD = _repeated("--load", "MODULE", _OFFERS)
_LIMITS = _arg(
    "--limits",
    f"other limits on programs than the defaults, of {', '.join(limits.NAMES)}",
    default="",
    metavar="NAME=VALUE,...",
)
_PROGRAM = _arg("program", metavar="PROG.cvm")
_PROGRAMS = _arg("programs", nargs="+", metavar="PROG.cvm")
_ANY_LEVEL = "a program, or kernels as lower --to loops shows them"
_ENTRY = _arg(
    "--entry",
    "the function (default: %(default)s, or the only one)",
    default="main",
    metavar="NAME",
)
_TARGET = _arg(
    "--target", "cpu (the default), reference, cuda or cuda-sim", default="cpu", metavar="TARGET"
)
_CPU = _arg(
    "--cpu", "the processor that the code is for, such as x86-64-v3 or native", metavar="NAME"
)
_LEVEL = "0 compiles one scalar loop nest for each operation, 2 optimizes (default: %(default)s)"
_OPTIMIZE = _arg(
    "-O", _LEVEL, type=int, choices=LEVELS, default=2, dest="optimize", metavar="LEVEL"
)
_CHECKED = (
    "check every access, alignment and proven interval while it runs, to find bugs of the compiler"
)
_SANITIZE = _flag("--sanitize", _CHECKED)


def _program_output(metavar: str, others: str = "") -> Argument:
    said = "where to write it, its constants beside it in an .npz (default: standard output, "
    return _arg("-o --output", f"{said}constants and all){others}", default="-", metavar=metavar)


_SCHEDULE = _arg(
    "--schedule",
    "the steps of a schedule, one a line, for the kernels or those of the function",
    metavar="FILE",
)
_INPUTS = _arg("--inputs", "arrays by the arguments' names", metavar="FILE.npz")
_OUTPUT = _arg(
    "-o --output", "where to write it (default: standard output)", default="-", metavar="FILE"
)
_ARRAY = "an argument's array"
_OF_EACH = "of A, and given again of B"
COMMANDS: dict[str, tuple[str, list[Argument | str]]] = {
    "run": (
        "run a function or a graph of a program, or kernels, and show what it gives",
        [
            _arg("program", _ANY_LEVEL, metavar="PROG.cvm"),
            _ENTRY,
            _TARGET,
            _CPU,
            _OPTIMIZE,
            _SANITIZE,
            _SCHEDULE,
            _repeated(
                "--input",
                "NAME=ARRAY",
                f"{_ARRAY}: a file (.npy, .csv, .png, .jpg), or numbers such as 3 or [[1,2],[3,4]]",
            ),
            _INPUTS,
            _arg(
                "--random-inputs",
                "random arrays for arguments not given otherwise",
                type=int,
                metavar="SEED",
            ),
            _arg(
                "--output",
                "write the results: all to an .npz, one to an .npy, .csv or .png",
                metavar="FILE",
            ),
            _repeated("--size", "NAME=N", "an open size of random arrays"),
            _flag(
                "--convert",
                "take arrays of other element types, where each value fits the declared one",
            ),
            _arg("--threads", "how many threads run large loops", type=int, metavar="N"),
            _flag("--profile", "show how long each kernel takes, and what it moves and does"),
            _flag("--time", "show how long compiling and running take"),
            _flag(
                "--digest",
                "show a SHA-256 digest of each result: of its type, as text, and its bytes",
            ),
            _arg(
                "--plot", "draw the results, with matplotlib; a .gif moves", metavar="FILE.png|.gif"
            ),
            "graphs: --input then names a field or sensor, of which an array may hold a "
            "value per tick",
            _arg("--steps", "how many ticks (default: 1)", type=int, metavar="N"),
            _arg(
                "--read",
                "what to show (default: all that has a name)",
                action="append",
                metavar="NAME",
            ),
            _arg("--every", "show it every K ticks, and --output all of it", type=int, metavar="K"),
            _arg("--save-state", "write the state afterwards", metavar="FILE"),
            _arg("--load-state", "start from a state that was written", metavar="FILE"),
        ],
    ),
    "check": (
        "parse and verify programs, and say every mistake",
        [
            _PROGRAMS,
            _flag(
                "--overflow",
                "also say where integers may leave their type; exit status 1 where they may",
            ),
            _flag("--integers-only", "refuse each operation and argument that has floats"),
            _flag("--werror", "exit status 1 also where there are warnings"),
            _arg(
                "--format",
                "of what is found (default: %(default)s)",
                choices=("text", "json", "sarif"),
                default="text",
            ),
            *(
                _arg(f"--{k}", f"as --format {k}", action="store_const", const=k, dest="format")
                for k in ("json", "sarif")
            ),
            _arg(
                "--exact-as",
                "of imported models: say how exact each operator is, as tflite-reference, "
                "tosa or onnxruntime; exit status 1 where one "
                "is bounded",
                metavar="REFERENCE",
            ),
            _arg(
                "-o --output", "write the certificate of a model, for verify", metavar="CERT.json"
            ),
        ],
    ),
    "verify": (
        "check a certificate of exactness: the program, the verdicts and the results",
        [
            _arg("certificate", metavar="CERT.json"),
            _arg("model", "the .tflite, .tosa, .mlir or .onnx file that it is of", metavar="MODEL"),
            _TARGET,
            _CPU,
        ],
    ),
    "tune": (
        "search for a schedule of kernels, or of those of a function, that makes them faster",
        [
            _arg("program", _ANY_LEVEL, metavar="PROG.cvm"),
            _ENTRY,
            _arg(
                "--seconds",
                "the time of the search (default: %(default)s); Ctrl-C keeps the best so far",
                type=float,
                default=60.0,
                metavar="S",
            ),
            _repeated("--input", "NAME=ARRAY", f"{_ARRAY}; of others, random ones"),
            _INPUTS,
            _repeated("--size", "NAME=N", "an open size of random arrays"),
            _OUTPUT,
        ],
    ),
    "opt": (
        "apply passes to a program and show what they make of it",
        [
            _arg("program", _ANY_LEVEL, metavar="PROG.cvm", nargs="?"),
            _arg(
                "--pipeline",
                'passes, in order, such as "canonicalize,fuse,unroll{factor=4}", or steps of a '
                'schedule, such as "split{loop=i by=8}"',
                default="",
                metavar="PASS,...",
            ),
            _repeated("--rewrites", "FILE.cvm", "add a file's rewrites to the pass simplify"),
            _SCHEDULE,
            _ENTRY,
            _arg(
                "--target",
                "all passes for this target; with --pipeline, its passes of these names",
                choices=("cpu", "cuda"),
            ),
            _arg(
                "--print-before-all",
                "show the program before each pass, on standard error",
                **_all("print_before"),
            ),
            _repeated("--print-before", "PASS", "show the program before this pass"),
            _arg(
                "--print-after-all",
                "show the program after each pass, on standard error",
                **_all("print_after"),
            ),
            _repeated("--print-after", "PASS", "show the program after this pass"),
            _flag("--print-changed", "show what each pass changes, as a unified diff"),
            _flag("--verify-each", "verify the program after each pass"),
            _CPU,
            _arg(
                "--timing",
                "show how long each pass takes, on standard error, as a tree or in JSON",
                nargs="?",
                const="tree",
                choices=("tree", "json"),
            ),
            _flag(
                "--run-reproducer", "the program is a reproducer, which a pass that failed has left"
            ),
            _flag("--generic", "MLIR's generic form"),
            _flag("--list", "list the passes"),
            _OUTPUT,
        ],
    ),
    "lower": (
        "show a program at a stage of its compilation",
        [
            _PROGRAM,
            _arg(
                "--to",
                "graph, mlir, linalg, formulas (the default), loops, strategies, schedule, "
                "llvm, llvm-opt, asm, cuda or ptx",
                default="formulas",
                metavar="STAGE",
            ),
            _ENTRY,
            _CPU,
            _OPTIMIZE,
            _SCHEDULE,
            _flag("--ranges", "with --to graph: say in comments from where to where integers go"),
            _arg(
                "--constants",
                "with --to formulas, loops or schedule: write the constants that the text "
                "leaves out, for run --inputs",
                metavar="FILE.npz",
            ),
            _OUTPUT,
        ],
    ),
    "build": (
        "compile functions ahead of time, for C code to call",
        [
            _PROGRAM,
            _arg(
                "--entry",
                "a function (default: main); may be repeated",
                action="append",
                metavar="NAME",
            ),
            _OPTIMIZE,
            _arg(
                "-o --output",
                "an object file, .o, a static library, .a, or a shared one, .so; with --emit c a "
                "file of C, .c",
                required=True,
                metavar="FILE",
            ),
            _arg(
                "--emit",
                "with c: write C99 of integer programs, which needs no library, for any "
                "processor's compiler",
                choices=["object", "c"],
                default="object",
            ),
            _flag(
                "--arena",
                "with --emit c: let intermediate arrays share one static buffer, where not all "
                "are in use",
            ),
            _repeated("--size", "NAME=N", "the value of a size that the program leaves open"),
            _arg(
                "--cpu",
                "the processor that the code is for, such as x86-64-v3 or native; of "
                "several, a library takes the last "
                "that the machine has, and the first is what it must have",
                metavar="NAME,...",
                dest="cpus",
                default="",
            ),
            _arg(
                "--triple",
                "the system that the code is for, such as aarch64-linux-gnu",
                default="",
                metavar="TRIPLE",
            ),
            _repeated(
                "--header",
                "FILE",
                "write the declarations, too: for C, .h, for C++, .hpp, or for Rust, .rs",
            ),
            _arg(
                "--require-exact",
                "refuse a model of which an operator is only within a bound of "
                "tflite-reference, tosa or onnxruntime",
                metavar="REFERENCE",
            ),
        ],
    ),
    "viz": (
        "draw the operations of a program",
        [
            _PROGRAM,
            _arg(
                "--entry",
                "a function (default: all); may be repeated",
                action="append",
                metavar="NAME",
            ),
            _flag("--whole", "draw each operation, also of blocks that repeat"),
            _arg(
                "-o --output",
                "a picture, .svg, .png or .pdf, or a page, .html",
                required=True,
                metavar="FILE",
            ),
        ],
    ),
    "import": (
        "make a program of a model of CVM-Runtime, ONNX, TensorFlow Lite, TOSA or MLIR",
        [
            _arg(
                "model",
                "a folder with symbol and params, an .onnx, .tflite, .tosa or .mlir file",
                metavar="MODEL",
            ),
            _program_output("PROG.cvm"),
            _repeated(
                "--size",
                "NAME=SIZE",
                "a size of a model's inputs: N=1 (ONNX), or of all of an input, "
                "image=1,3,224,224; may be repeated",
            ),
            _repeated(
                "--constant",
                "NAME=VALUE",
                "an input of an ONNX model that becomes a constant: axes=[0,2] or "
                "table=FILE.npy; may be repeated",
            ),
            _arg(
                "--rounding",
                "how a .tflite model rounds scaled sums: tflite_double (default, the "
                "reference kernels'), or single",
                choices=("tflite_double", "single"),
            ),
        ],
    ),
    "quantize": (
        "make a program of integers of a float model, with the ranges that data shows",
        [
            _arg("model", "a program, or a model such as an .onnx or a .tflite", metavar="MODEL"),
            _arg(
                "--data",
                "samples along axis 0: an .npy, an .npz with an array for each argument, or a "
                "folder of such files and pictures",
                required=True,
                metavar="FILE|FOLDER",
            ),
            _arg(
                "--scheme",
                "tflite (8 bits, LiteRT's rounding), cvm (powers of two, only operators of the cvm "
                "dialect), tosa or qdq (onnxruntime's float factors; default: the scheme of a "
                "model's suffix, else tflite)",
                choices=("tflite", "cvm", "tosa", "qdq"),
            ),
            _arg(
                "--method",
                "how ranges are chosen: by least mean squared error (mse, the default), by minmax "
                "or by percentile",
                choices=("mse", "minmax", "percentile"),
                default="mse",
            ),
            _ENTRY,
            _repeated("--size", "NAME=N", "the value of a size that the program leaves open"),
            _repeated("--weight-bits", "[NAME=]N", "8 or 4 bits, for all layers or one"),
            _repeated("--activation-bits", "[NAME=]N", "8 or 16 bits, for all values or one"),
            _arg(
                "--within",
                "give 4 bits to the weights of layers, the least sensitive first, while at most "
                "this share of the results differs from the float program, such as 1%%",
                metavar="SHARE",
            ),
            _flag("--no-equalize", "keep the channels of weights as they are"),
            _flag("--float-io", "keep floats for arguments and results, and convert them inside"),
            _arg("--report", "write how far each value is from floats", metavar="FILE.html|.json"),
            _program_output("PROG.cvm|MODEL.tflite|.tosa|.onnx", ", or a model of the scheme"),
        ],
    ),
    "prove": (
        "prove that functions give the same results for all inputs, or find a counterexample",
        [
            _arg("program", "a program, or a package with patterns", metavar="PROG.cvm|PACKAGE"),
            _repeated(
                "--equal",
                "F,G",
                "two functions to compare (default: those that take and give the same types)",
            ),
            _arg(
                "--pipeline",
                "compare a function before and after these passes",
                default="",
                metavar="PASS,...",
            ),
            _ENTRY,
            _CPU,
            _arg(
                "--seconds",
                "for each question to z3 (default: %(default)s)",
                type=float,
                default=60,
                metavar="N",
            ),
            _flag("--strict", "exit status 1 also where something is only tested"),
            _arg(
                "-o --output",
                "where to write the counterexample, a program (default: standard output)",
                default="-",
                metavar="FILE.cvm",
            ),
        ],
    ),
    "ops": (
        "list the operators, or show the page of one",
        [
            _arg("name", nargs="?", metavar="DIALECT[.OP]"),
            _flag("--check", "check formulas, derivatives and simplifications by their examples"),
        ],
    ),
    "explain": (
        "show the rule of a diagnostic, with a wrong and a right program",
        [
            _arg(
                "code", "what stands in brackets after error, such as cvm.dense.C2", metavar="CODE"
            ),
        ],
    ),
    "fmt": (
        "rewrite programs in the usual layout",
        [
            _PROGRAMS,
            _flag("--check", "change nothing; exit status 1 where something would change"),
        ],
    ),
    "test": (
        "run the `// test` lines of .cvm files",
        [
            _arg("paths", nargs="+", metavar="DIR|FILE"),
            _arg(
                "-k",
                "run the tests that have this in their file's or command's name",
                metavar="TEXT",
            ),
            _arg("-j", "run files in N processes", dest="jobs", type=int, default=1, metavar="N"),
            _flag("--list", "list the tests, and run none"),
            _flag("--bless", "write what they print into their golden lines (also: CVM_BLESS=1)"),
        ],
    ),
    "selftest": (
        "compute a fixed set of programs, and compare its digest with the recorded one",
        [
            _TARGET,
            _CPU,
            _OPTIMIZE,
            _arg("--threads", "how many threads run large loops", type=int, metavar="N"),
            _arg(
                "--only",
                "the parts whose names match, such as 'cvm.*'",
                default="*",
                metavar="PATTERN",
            ),
            _flag("--report", "print the digest of each part, to compare two machines' by diff"),
            _flag("--bless", "record the digests, which are computed on cpu (also: CVM_BLESS=1)"),
        ],
    ),
    "doctor": (
        "show versions, processor, targets, cache and extras, and how to get what is missing",
        [
            _flag(
                "--measure",
                "time strategies and threads on this machine for about a minute, and keep their "
                "costs for calls here",
            )
        ],
    ),
    "cache": (
        "show or empty the disk cache of compiled code",
        [_arg("action", choices=("info", "clear"))],
    ),
    "completion": (
        "print a script that completes commands and flags in a shell",
        [
            _arg("shell", choices=("bash", "zsh", "tcsh")),
        ],
    ),
    "new": (
        "write the skeleton of a package that extends cvm",
        [
            _arg("what", choices=("dialect",)),
            _arg("name", "the dialect's name; the package is NAME_dialect", metavar="NAME"),
            _arg("-o --output", "the folder (default: NAME_dialect)", metavar="DIR"),
        ],
    ),
    "diff": (
        "find the first operation whose values differ between two targets, programs or pipelines",
        [
            _arg("a", metavar="A.cvm"),
            _arg(
                "b",
                "another program, or saved values by their names",
                nargs="?",
                metavar="B.cvm|B.npz",
            ),
            _ENTRY,
            _repeated(
                "--target",
                "TARGET",
                f"the target {_OF_EACH} (default: cpu and reference, where nothing else differs)",
            ),
            _repeated("--pipeline", "PASS,...", f"the passes {_OF_EACH}"),
            _arg(
                "--ulps",
                "how far apart equal floats may be (default: 0)",
                type=int,
                default=0,
                metavar="N",
            ),
            _repeated("--input", "NAME=FILE.npy", _ARRAY),
            _INPUTS,
            _arg(
                "--random-inputs",
                "random arrays of this seed for the others",
                type=int,
                metavar="SEED",
            ),
            _arg(
                "--seeds",
                "how many seeds are tried otherwise (default: 10)",
                type=int,
                default=10,
                metavar="N",
            ),
        ],
    ),
    "reduce": (
        "shrink a program on which a command fails",
        [
            _PROGRAM,
            _arg(
                "--test",
                "a command that fails on the program, whose path takes the place of {}, or "
                "comes last",
                required=True,
                metavar="CMD",
            ),
            _arg(
                "--expect",
                "what the command prints when it fails as it should",
                default="",
                metavar="TEXT",
            ),
            _arg(
                "--timeout",
                "of the command (default: %(default)s)",
                type=float,
                default=60,
                metavar="SECONDS",
            ),
            _OUTPUT,
        ],
    ),
    "lsp": (
        "serve an editor: diagnostics, types, operators' pages, completion, renaming (pygls)",
        [],
    ),
    "cost": (
        "count the operations and bytes of a call, against what this machine can do",
        [
            _arg("program", "a program, or kernels", metavar="PROG.cvm"),
            _ENTRY,
            _CPU,
            _OPTIMIZE,
            _repeated("--size", "NAME=N", "an unknown size; 1 by default"),
            _arg(
                "--target",
                "cpu (the default): this machine; cuda: a model of GPUs, by the emulator's counts",
                choices=("cpu", "cuda"),
                default="cpu",
            ),
            _flag("--json", "print the counts in JSON"),
            _arg(
                "-o --output",
                "the roofline, .svg, or a page with the counts, .html",
                metavar="FILE",
            ),
        ],
    ),
    "report": (
        "write a page: drawing, stages side by side, strategies, memory, costs and times",
        [
            _PROGRAM,
            _ENTRY,
            _CPU,
            _SCHEDULE,
            _repeated("--size", "NAME=N", "a size that the program leaves open"),
            _arg("-o --output", "where to write it", required=True, metavar="FILE.html"),
        ],
    ),
}


class _Parser(argparse.ArgumentParser):
    """Suggests the command, flag or value that a wrong word may mean."""

    given: Sequence[str] = ()

    def parse_known_args(self, *args: Any, **named: object) -> Any:
        self.given = sys.argv[1:] if not args or args[0] is None else args[0]
        found, more = super().parse_known_args(*args, **named)
        return (
            (found, more) if not more else self.error(f"unrecognized arguments: {' '.join(more)}")
        )

    def error(self, message: str) -> NoReturn:
        from cvm.dialect.support.suggest import did_you_mean

        known = [s for a in self._actions for s in a.option_strings]
        flags = [
            f
            for f in self.given
            if f[:2] == "--" and not any(s.startswith(f.partition("=")[0]) for s in known)
        ]
        if flags and "required:" in message and did_you_mean(flags[0], known):
            message = f"unrecognized arguments: {flags[0]}"
        if (
            word := re.search(
                r"invalid choice: '([^']*)'|unrecognized arguments: (-[^\s=]*)", message
            )
        ) is not None:
            known = (
                known
                if word[1] is None
                else [str(c) for a in self._actions for c in a.choices or ()]
            )
            message += did_you_mean(word[word.lastindex or 0], known)
        super().error(printable(message))


def parser() -> argparse.ArgumentParser:
    top = _Parser(
        prog="cvm",
        description="Runs, checks, tests, shows and formats tensor programs. A file named - is "
        "standard input or output.",
    )
    top.add_argument("--version", action="version", version=f"cvm {cvm.__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for name, (help, arguments) in COMMANDS.items():
        examples = "".join(f"\n  cvm {line}" for line in EXAMPLES.get(name, ()))
        command: object = commands.add_parser(
            name,
            help=help,
            description=f"{help[0].upper()}{help[1:]}.",
            epilog=examples and f"examples:{examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(command=name)
        for argument in (_LOAD, _LIMITS, *arguments):
            if isinstance(argument, str):  # those after it are a group of their own
                command = command.add_argument_group(*argument.split(": ", 1))
            else:
                command.add_argument(*argument[0], **argument[1])
    return top
