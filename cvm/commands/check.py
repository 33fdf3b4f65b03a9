"""`cvm check`: verify programs, and print `ok` or all mistakes and warnings; with `--overflow` also
possible overflows, with `--exact-as` how exact each operator of a model is. `cvm verify`: check a
certificate of that, on any target.

A certificate is JSON: the digests of a model's file, of its program, and of the results of calls
with seeded inputs, the verdict on every operator, the program that verdicts were tested against,
and the versions that it was made with. To verify it compares cvm with cvm; the other program is not
run.
"""

import hashlib
import json
import platform
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import cvm
from cvm.dialect.ir.function import Value
from cvm.dialect.ir.module import Module
from cvm.dialect.kernel_ir.formulas import Formulas
from cvm.dialect.support.diagnostics import Source, Span, counted
from cvm.dialect.types.sizes import Size
from cvm.importers.exactness import REFERENCES, summary, verdicts
from cvm.lowering.formulas.overflow_warnings import possible_overflows
from cvm.terminal.arguments import UNKNOWN
from cvm.terminal.diagnostics import as_json, as_sarif, show
from cvm.terminal.display import digest
from cvm.terminal.files import load, read, shown, write
from cvm.terminal.read_program import named, read_level, warnings_of
from cvm.terminal.usage import Usage

FORMAT = "cvm certificate 1"
SEEDS = 3  # of calls
EMPTY = (
    "expected a function, as in func @main(%x: tensor<4xi32>) { return %x }, but the text has none"
)


def check(options: Namespace) -> int:
    """Prints what is found; 1 where something is a mistake, may overflow, or is warned of under
    `--werror`.
    """
    by_kind: dict[str, list[cvm.Diagnostic]] = {"warning": [], "possible overflow": [], "error": []}
    bounded = 0
    if options.output and (not options.exact_as or len(options.programs) > 1):
        raise Usage("-o writes the certificate of one model, with --exact-as")
    for name in options.programs:
        try:
            if not isinstance(program := read_level(name), Module):
                formulas = isinstance(program, Formulas)
                count = len(program.steps) if formulas else len(program.kernels)
                parts = [counted(count, "formula" if formulas else "kernel")]
                by_kind["warning"] += warnings_of(program)
            elif not program.functions and not program.rewrites:
                raise cvm.Error(
                    cvm.Diagnostic(EMPTY, Span(Source(shown(name), ""), 0, 0), "program.empty")
                )
            elif options.exact_as:
                operators = verdicts(program, options.exact_as)
                if options.output:
                    write(options.output, certificate(program, name, options.exact_as))
                bounded += sum(v.verdict == "bounded" for v in operators)
                head = (
                    f"{shown(name)}: as {options.exact_as}, {counted(len(operators), 'operator')}, "
                    f"by rules tested against {REFERENCES[options.exact_as]}"
                )
                print(head, *summary(operators), sep="\n  ")
                continue
            else:
                by_kind["warning"] += warnings_of(program)
                if options.integers_only and (found := floats(program)):
                    raise cvm.Error(found)
                by_kind["possible overflow"] += (
                    possible_overflows(program) if options.overflow else []
                )
                operations = sum(len(f.operations) for f in program.functions.values())
                parts = [
                    counted(len(program.named), "function"),
                    counted(operations, "operation"),
                ]
                parts += [counted(n, "rewrite") for n in [len(program.rewrites)] if n]
            if options.format == "text":
                print(f"{shown(name)}: ok, {', '.join(parts)}")
        except cvm.Error as e:
            by_kind["error"] += e.diagnostics
    if options.format == "text":
        for kind, diagnostics in by_kind.items():
            show(diagnostics, kind)
    else:
        diagnostics = [d for group in by_kind.values() for d in group]
        print(as_json(diagnostics) if options.format == "json" else as_sarif(diagnostics))
    failed = (
        bounded
        or by_kind["error"]
        or by_kind["possible overflow"]
        or (by_kind["warning"] and options.werror)
    )
    return 1 if failed else 0


def floats(module: Module) -> list[cvm.Diagnostic]:
    """A mistake for each argument and each operation that has floats."""
    found: list[cvm.Diagnostic] = []
    for function in module.functions.values():
        for a in function.arguments:
            if not a.known_type.element.is_discrete:
                found.append(cvm.Diagnostic(f"%{a.name} is {a.type}", a.span, "check.float"))
        for operation in function.operations:
            values = (*(v for _, v in operation.operator.operands()), *operation.results)
            held = next((v for v in values if not v.known_type.element.is_discrete), None)
            if held is not None:
                said = f"{operation.operator.name} computes on floats, {held.type}"
                found.append(cvm.Diagnostic(said, operation.at("op"), "check.float"))
    return found


# Certificates


def verify(options: Namespace) -> int:
    try:
        stated = json.loads(read(options.certificate))
    except (ValueError, RecursionError):
        stated = None
    if not isinstance(stated, dict) or stated.get("format") != FORMAT:
        remedy = "`cvm check --exact-as REFERENCE -o CERT.json MODEL` writes it"
        raise cvm.Error(f"{options.certificate} is no certificate, as {remedy}")
    actual = statement(
        load(options.model), options.model, str(stated.get("reference")), options.target
    )
    if different := difference({k: v for k, v in stated.items() if k != "made"}, actual):
        raise cvm.Error(f"{options.model} is not as {options.certificate} says: {different}")
    operators, calls = (
        counted(len(actual[k]), k.removesuffix("s")) for k in ("operators", "calls")
    )
    print(
        f"{options.model}: verified on {options.target}: {operators}, {calls}\n"
        f"  cvm's results equal those of cvm in the certificate; {actual['reference']} was not run"
    )
    return 0


def certificate(module: Module, name: str, reference: str) -> bytes:
    """The certificate of a model, made on this machine's processor."""
    from cvm.jit.host_processor import host_name, llvm_version

    origin = {"cvm": cvm.__version__, "numpy": np.__version__, "llvm": llvm_version()}
    origin |= {"python": platform.python_version(), "target": "cpu", "processor": host_name()}
    return (
        json.dumps({**statement(module, name, reference, "cpu"), "made": origin}, indent=1).encode()
        + b"\n"
    )


def statement(module: Module, name: str, reference: str, target: Any) -> dict[str, Any]:
    """The part of a certificate that any machine and target has to find equal."""
    from cvm.jit.cache.keys import described

    lines = [line for f in module.functions.values() for line in described(f)]
    f: object = cvm.compile(module, target=target)
    calls = (
        named(f, f(*seeded(module.functions["main"].arguments, seed))) for seed in range(SEEDS)
    )
    return {
        "format": FORMAT,
        "reference": reference,
        "tested_against": REFERENCES.get(reference),
        "model": {"file": Path(name).name, "sha256": hashlib.sha256(read(name)).hexdigest()},
        "operators": [asdict(v) for v in verdicts(module, reference)],
        "program": hashlib.sha256("\n".join(lines).encode()).hexdigest(),
        "calls": [
            {"seed": n, "results": {k: digest(a) for k, a in c.items()}}
            for n, c in enumerate(calls)
        ],
    }


def seeded(arguments: Sequence[Value], seed: int) -> list[np.ndarray]:
    """Inputs that depend on the seed alone: of integers of up to 16 bits all values, of wider ones
    0 to 127, and floats in [-4, 4).
    """
    arrays: list[np.ndarray] = []
    for a in arguments:
        element = a.known_type.element
        shape = [UNKNOWN if isinstance(d, Size) else d for d in a.known_type.array_shape]
        is_narrow = element.is_integer and element.bits <= 16
        dtype = (
            element.dtype
            if is_narrow
            else np.dtype(np.int16 if not element.is_discrete else np.uint8)
        )
        raw = hashlib.shake_256(f"{seed} {a.name}".encode()).digest(
            int(np.prod(shape, dtype=object)) * dtype.itemsize
        )
        numbers = np.frombuffer(raw, dtype.newbyteorder("<")).reshape(shape)
        if not is_narrow:
            numbers = (
                numbers / 2**13
                if not element.is_discrete
                else numbers & (1 if element.name == "i1" else 127)
            )
        arrays.append(numbers.astype(element.dtype))
    return arrays


def difference(stated: object, actual: object, place: str = "") -> str:
    """The first entry in which two statements differ, in words; empty where they are equal."""
    if isinstance(stated, dict) and isinstance(actual, dict):
        keys = [*actual, *(k for k in stated if k not in actual)]
        pairs = [(f"{place}.{k}" if place else k, stated.get(k), actual.get(k)) for k in keys]
    elif isinstance(stated, list) and isinstance(actual, list) and len(stated) == len(actual):
        pairs = [
            (f"{place}[{n}]", *pair) for n, pair in enumerate(zip(stated, actual, strict=True))
        ]
    else:
        return (
            "" if stated == actual else f"{place} is {_short(actual)} here, {_short(stated)} there"
        )
    return next((d for name, a, b in pairs if (d := difference(a, b, name))), "")


def _short(value: object) -> str:
    return (
        "missing"
        if value is None
        else f"{len(value)} entries"
        if isinstance(value, (list, dict))
        else str(value)
    )
