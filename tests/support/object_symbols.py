"""The symbols that an object file takes from elsewhere: of ELF, and of WebAssembly."""

from __future__ import annotations

import struct
from collections.abc import Iterator


def undefined(image: bytes) -> set[str]:
    """The names that an object file uses and does not define."""
    return set(_elf(image) if image[:4] == b"\x7fELF" else _wasm(image)) - {""}


def _elf(image: bytes) -> Iterator[str]:
    """By the sections of type SHT_SYMTAB: little-endian, of 32 or 64 bits."""
    wide = image[4] == 2
    (start,) = struct.unpack_from("<Q" if wide else "<I", image, 40 if wide else 32)
    size, count = struct.unpack_from("<HH", image, 58 if wide else 46)
    form = "<IIQQQQIIQQ" if wide else "<IIIIIIIIII"
    sections = [struct.unpack_from(form, image, start + n * size) for n in range(count)]
    for _, kind, _, _, offset, length, link, _, _, entry in sections:
        if kind != 2:
            continue
        names = sections[link][4]
        for at in range(offset, offset + length, entry):
            (name,) = struct.unpack_from("<I", image, at)
            (section,) = struct.unpack_from("<H", image, at + (6 if wide else 14))
            if section == 0:
                yield image[names + name : image.index(b"\0", names + name)].decode()


def _wasm(image: bytes) -> Iterator[str]:
    """By the section of imports: functions, tables, memories and globals."""
    at = 8
    while at < len(image):
        kind = image[at]
        length, at = _number(image, at + 1)
        if kind == 2:
            yield from _imports(image, at)
        at += length


def _imports(image: bytes, at: int) -> Iterator[str]:
    count, at = _number(image, at)
    for _ in range(count):
        names = []
        for _ in range(2):
            length, at = _number(image, at)
            names.append(image[at : at + length].decode())
            at += length
        kind, at = image[at], at + 1
        if kind == 0:
            yield names[1]
            _, at = _number(image, at)
            continue
        at += kind in (1, 3)  # a table's element, a global's type
        if kind == 3:
            at += 1
            continue
        flags, at = image[at], at + 1
        for _ in range(1 + (flags & 1)):
            _, at = _number(image, at)


def _number(image: bytes, at: int) -> tuple[int, int]:
    """A number in LEB128, and where it ends."""
    value = shift = 0
    while True:
        byte, at = image[at], at + 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
