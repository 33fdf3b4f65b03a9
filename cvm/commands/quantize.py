"""`cvm quantize`: a float model and data to a program of integers, with a report of how far each
value is from its float.
"""

import json
import sys
from argparse import Namespace
from collections.abc import Iterable
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cvm
from cvm.commands.importing import archive_of, with_archive
from cvm.dialect.ir.diagram import svg as drawing
from cvm.quantization import QuantizedModule, Report
from cvm.terminal.diagnostics import unescaped
from cvm.terminal.display import waiting
from cvm.terminal.files import load, page, suffix_of, write
from cvm.terminal.read_program import bind_sizes, parsed_sizes

COLUMNS = (
    "value",
    "operation",
    "line",
    "scale",
    "zero point",
    "range",
    "on the data",
    "SNR, dB",
    "beyond the range",
    "bits of a sum",
    "error of a table",
    "histogram",
    "bits",
    "bits of weights",
)
# by suffix: the scheme that each can state
MODELS = {".tflite": "tflite", ".tosa": "tosa", ".onnx": "qdq"}
A_MODEL = f"a model, {', '.join(MODELS)}"
WORST = 5  # values that the summary names


def quantize(options: Namespace) -> int:
    kind = suffix_of(options.output, (".cvm", *MODELS), f"a program, .cvm, or {A_MODEL}")
    scheme: Any = options.scheme or MODELS.get(kind, "tflite")
    if scheme != MODELS.get(kind, scheme):
        raise cvm.Error(f"a {kind} has the scheme {MODELS[kind]}, got {scheme}")
    if options.report:
        suffix_of(options.report, (".html", ".json"), "a page, .html, or .json")
    module = load(options.model)
    if sizes := parsed_sizes(options.size):
        module = bind_sizes(module, sizes)
    with waiting("quantizing"):
        made = cvm.quantize(
            module,
            options.data,
            scheme,
            entry=options.entry,
            method=options.method,
            weight_bits=widths("--weight-bits", options.weight_bits),
            activation_bits=widths("--activation-bits", options.activation_bits),
            within=share(options.within),
            equalized=not options.no_equalize,
            float_io=options.float_io,
            progress=progress,
        )
    if kind in MODELS:
        write(options.output, getattr(made, f"to_{kind[1:]}")())
    else:
        _write_program(made, options.output)
    if options.report:
        write(options.report, written(made, options.report, Path(options.model).name))
    print(summary(made.report), file=sys.stderr if options.output == "-" else sys.stdout)
    return 0


def _write_program(made: QuantizedModule, name: str) -> None:
    output = Path(name)
    archive = None if name == "-" else output.with_suffix(".npz")
    program, constants = with_archive(made, archive and archive.name)
    if archive and constants:
        write(str(archive), archive_of(constants))
    write(name, str(program).encode())


def widths(option: str, given: list[str]) -> dict[str, int]:
    """Numbers of bits by the names of values, from `N` and `NAME=N`."""
    found = dict[str, int]()
    for text in given:
        name, _, bits = text.rpartition("=")
        if not bits.isdecimal():
            raise cvm.Error(f"{option} is a number of bits, or NAME=N; got {text}")
        found[name.removeprefix("%")] = int(bits)
    return found


def share(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise cvm.Error(f"--within is a share, such as 1% or 0.01; got {text}") from None


def progress(items: Iterable[Any], activity: str) -> Iterable[Any]:
    """A progress bar on a terminal, by tqdm if it is installed."""
    if not sys.stderr.isatty() or find_spec("tqdm") is None:
        return items
    from tqdm import tqdm

    return tqdm(items, activity, unit=" batches", leave=False, delay=1, file=unescaped(sys.stderr))


def summary(report: Report) -> str:
    lines = [
        f"{report.scheme}: {report.samples} samples; constants: {report.float_bytes} bytes to "
        f"{report.bytes}; operations of a call: {report.float_operations} to {report.operations}"
    ]
    for r in report.results:
        share = "" if r.agreement is None else f"{r.agreement:.2%}"
        agreement = share and f", the largest element of {share} of the rows in the same place"
        lines.append(f"%{r.name}: {r.snr:.1f} dB, error at most {r.largest_error:.3g}{agreement}")
    for row in sorted(report.rows, key=lambda r: r.snr)[:WORST]:
        cut = f", {row.saturated:.2%} beyond its range" if row.saturated else ""
        lines.append(f"  %{row.name} ({row.operation}): {row.snr:.1f} dB{cut}")
    if report.ranking:
        lines.append(
            "layers by the error of 4-bit weights in each alone, for each bit that is saved:"
        )
    for n in report.ranking:
        lines.append(f"  %{n.name}: {n.snr:.1f} dB, {n.weights} weights of {n.bits} bits")
    return "\n".join(lines)


def written(made: QuantizedModule, name: str, title: str) -> bytes:
    """The report as JSON, or as a page with the drawing of the program."""
    if name.endswith(".json"):
        return json.dumps(made.report.as_json(), indent=1).encode()
    cells = "".join(f"<th>{h}</th>" for h in COLUMNS)
    rows = "".join(_html_row(r) for r in made.report.rows)
    table = f"<table><tr>{cells}</tr>{rows}</table>"
    drawn = drawing(made, [made.functions["main"]])
    return page(
        "quantization.html",
        TITLE=escape(f"{title} · {made.report.scheme}"),
        SUMMARY=escape(summary(made.report)),
        ROWS=table,
        DRAWING=drawn,
    ).encode()


def _html_row(r: Any) -> str:
    most = max(r.histogram) or 1
    bars = "".join(
        f'<rect x="{2 * n}" y="{20 - 20 * c / most:.1f}" width="2" height="{20 * c / most:.1f}"/>'
        for n, c in enumerate(r.histogram)
        if c
    )
    sum_bits = "" if r.sum_bits is None else str(r.sum_bits)
    table_error = "" if r.table_error is None else f"{r.table_error:.4f}"
    cells = (
        escape(f"%{r.name}"),
        escape(r.operation),
        str(r.line or ""),
        f"{r.scale:.6g}",
        str(r.zero_point),
        f"[{r.low:.4g}, {r.high:.4g}]",
        f"[{r.least:.4g}, {r.most:.4g}]",
        f"{r.snr:.1f}",
        f"{r.saturated:.3%}",
        sum_bits,
        table_error,
        f'<svg width="{2 * len(r.histogram)}" height="20">{bars}</svg>',
        str(r.bits),
        str(r.weight_bits or ""),
    )
    return f"<tr>{''.join(f'<td>{c}</td>' for c in cells)}</tr>"
