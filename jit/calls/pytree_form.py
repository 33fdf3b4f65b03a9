"""The form by which `pytree.ll` takes arguments in tuples, lists and dictionaries apart."""

# kinds of parts, which `pytree.ll` describes
LEAF, SAME, TUPLE, LIST, DICT = range(5)


def form_words(structure: object) -> list[int]:
    """The form of a structure, as words; values and keys stand there by address, so the structure
    must be kept.
    """
    match structure:
        case ("array",):
            return [LEAF]
        case ("static", value):
            return [SAME, id(value)]
        case ("dict", keys, parts):
            words = [DICT, len(keys)]
            for key, part in zip(keys, parts, strict=True):
                words += [id(key), *form_words(part)]
            return words
        case (kind, parts):
            return [
                TUPLE if kind == "tuple" else LIST,
                len(parts),
                *(w for p in parts for w in form_words(p)),
            ]
    raise TypeError(structure)
