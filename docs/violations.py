"""Writes cvm/commands/violations.json: for each constraint the shortest function of the filetests
that breaks it.

`cvm explain` shows it. A constraint that only a call can break has the function and the call.

python docs/violations.py
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]

from cvm.dialect.spec.operator import OPERATORS  # noqa: E402
from cvm.parser import check  # noqa: E402

import cvm  # noqa: E402
from cvm.testing.commands import calls_of  # noqa: E402
from cvm.testing.filetest import Filetest  # noqa: E402

STORED = ROOT / "cvm" / "commands" / "violations.json"
MARK = "  // wrong"
CONSTRAINT = re.compile(r"[\w.]+\.C\d+")


def functions(text: str) -> dict[str, str]:
    """The text of each function and graph of a file, its head on one line; expected errors are
    marked, comments are gone.
    """
    plain = re.sub(r"[ \t]*//(?! error:)[^\n]*", "", text)
    plain = re.sub(r"[ \t]*// error:[^\n]*", MARK, plain)
    found = {}
    for match in re.finditer(
        r"^((?:func|graph) @([\w.$]+).*?\{\n)(.*?^\})", plain, re.MULTILINE | re.DOTALL
    ):
        lines = [line.rstrip() for line in match[3].splitlines() if line.strip()]
        found[match[2]] = "\n".join(
            [re.sub(r"\s+", " ", match[1].replace(MARK, "")).strip(), *lines]
        )
    return found


def with_callees(name: str, known: dict[str, str]) -> str:
    """The text of a function and of those that it names."""
    wanted, left = {name: None}, [name]
    while left:
        for callee in re.findall(r"@([\w.$]+)", known[left.pop()]):
            if callee in known and callee not in wanted:
                wanted[callee] = None
                left.append(callee)
    return "\n".join(known[n] for n in reversed(wanted))


def cut(function: str, line: int) -> str:
    """A function with one of its lines, those that define what it uses, and the arguments that
    these need.
    """
    head, *body = function.splitlines()
    kept, wanted = [body[line]], names(body[line])
    for above in reversed(body[:line]):
        if names(above.partition("=")[0]) & wanted:
            kept.insert(0, above)
            wanted |= names(above)
    match = re.fullmatch(r"func (@[\w.$]+)\((.*)\)(?: -> .*)? \{", head)
    if match is None:
        return "\n".join([head, *kept, "}"])
    arguments = [a for a in re.split(r", (?=%)", match[2]) if names(a) & wanted]
    ends = [] if kept[-1].lstrip().startswith("return") else ["  return"]
    return "\n".join([f"func {match[1]}({', '.join(arguments)}) {{", *kept, *ends, "}"])


def alone(function: str, line: int) -> str:
    """A function without the lines that are wrong, but for this one."""
    head, *body = function.splitlines()
    return "\n".join(
        [head, *(text for n, text in enumerate(body) if n == line or MARK not in text)]
    )


def names(text: str) -> set[str]:
    return set(re.findall(r"%[\w.$]+", text))


def violations() -> dict[str, str]:
    """A program for each code."""
    found: dict[str, str] = {}

    def keep(code: str, program: str) -> None:
        if CONSTRAINT.fullmatch(code) and (code not in found or len(program) < len(found[code])):
            found[code] = program

    for path in sorted((ROOT / "tests" / "filetests").rglob("*.cvm")):
        file = Filetest.load(path)
        known = functions(path.read_text("utf-8"))
        if "check" in file.commands:
            for name, text in known.items():
                for line in range(text.count("\n")):
                    for part in (cut(text, line), alone(text, line)):
                        program = with_callees(name, {**known, name: part}).replace(MARK, "")
                        codes = {d.code for d in check(program)[1]}
                        if len(codes) == 1:
                            keep(*codes, program)
        if "run" in file.commands:
            for _, text, call in calls_of(file):
                if call.error and call.function in known:
                    code = call.error.partition(":")[0].strip()
                    keep(
                        code,
                        f"{with_callees(call.function, known).replace(MARK, '')}\n"
                        f"// called as {text.partition(' error:')[0]}",
                    )
    return {code: found[code] for code in sorted(found) if code.rpartition(".")[0] in OPERATORS}


if __name__ == "__main__":
    assert cvm.__version__
    STORED.write_text(json.dumps(violations(), indent=0) + "\n", "utf-8")
