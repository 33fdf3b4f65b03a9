"""C99 of integers: types and functions, identifiers, and the helpers that kernels call."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from .spelling import ROWS, Spelling

_SIGNED = {f"i{n}": f"int{n}_t" for n in (8, 16, 32, 64)}
_TYPES = {**_SIGNED, **{f"u{name}": f"u{ctype}" for name, ctype in _SIGNED.items()}}
_SUFFIXES = {ctype: f"_{name.replace('ui', 'u')}" for name, ctype in _TYPES.items()}
C99 = Spelling({"i1": "bool", **_TYPES}, {"i1": "uint8_t"}, ROWS, _SUFFIXES)
BYTES = {c: int("".join(filter(str.isdigit, c))) // 8 for c in _SUFFIXES}
LINE = 100  # characters of a line of constants or of a comment
_CALL = re.compile(rf"\b(\w+?)({'|'.join(_SUFFIXES.values())})\(")
# words of C99, C23 and C++ that no name may be, and macros that compilers predefine
_WORDS = """
alignas alignof and and_eq asm assert auto bitand bitor bool break case catch char class compl
complex const const_cast constexpr continue decltype default delete do double dynamic_cast else
enum errno explicit export extern false float for friend goto if imaginary inline int linux
long   mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected
public   register reinterpret_cast restrict return short signed sizeof static static_assert
static_cast   struct switch template this thread_local throw true try typedef typeid typename
typeof   typeof_unqual union unix unsigned using virtual void volatile wchar_t while xor xor_eq
arm avr i386 mips sparc sun status step main"""
RESERVED = frozenset(_WORDS.split())
HEAD = """\
#include <stdbool.h>
#include <stdint.h>

/* int has 32 bits, numbers are two's complements, and shifts to the right keep the sign */
typedef char assumed_of_int[sizeof(int) == 4 && (int8_t)0xffu == -1 && (-2 >> 1) == -1 ? 1 : -1];
"""


def is_taken(name: str) -> bool:
    """Test whether a name is a word of C, or of a type, a macro or a helper of emitted files."""
    if name in RESERVED or re.fullmatch(r"u?int\w*_t|\w+_(MAX|MIN|C)|assumed_of_int", name):
        return True
    return (call := _CALL.match(f"{name}(")) is not None and call[1] in helpers()


class Names:
    """Identifiers, each given once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = set(taken)

    def of(self, name: str) -> str:
        """An identifier like a name of the program; a further one has a number."""
        plain = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
        plain = plain if plain[:1].isalpha() else f"v{plain}"
        found, n = plain, 2
        while found in self.taken or is_taken(found):
            found, n = f"{plain}_{n}", n + 1
        self.taken.add(found)
        return found


@cache
def helpers() -> dict[str, str]:
    """Functions that a file defines if it calls them, by name, for types T and U."""
    text = Path(__file__).with_name("helpers.c").read_text("utf-8")
    _, *parts = re.split(r"(?m)^//> (\w+)\n", text)
    return dict(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))


def helpers_text(body: str) -> list[str]:
    """The definitions of the functions that a text calls."""
    found: list[str] = []
    for name, suffix in sorted({c for c in _CALL.findall(body) if c[0] in helpers()}):
        ctype = next(c for c, s in _SUFFIXES.items() if s == suffix)
        unsigned = "uint64_t" if "64" in ctype else "uint32_t"
        text = re.sub(r"_T\b", suffix, helpers()[name])
        found.append(re.sub(r"\bU\b", unsigned, re.sub(r"\bT\b", ctype, text)))
    return found
