"""Arguments in tuples, lists and dictionaries, taken apart by machine code that follows a form.

A form is a list of words, FORM_WORDS of a structure written one after the other: what a part is,
and what belongs to it, then its parts. Whatever is not exactly of the form is left to others.
"""

from typing import Any

# an array; the object that follows; so many parts; the same; so many, after keys
LEAF, SAME, TUPLE, LIST, DICT = range(5)


def form_words(structure: Any) -> list[int]:
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


FORMS = f"""
# whether objects are of a form; their arrays are listed
def taken_apart(objects: ptr, n: i64, form: ptr, listed: ptr) -> i1:
    place = ir(ptr, "alloca ptr")
    ptr[place] = listed
    return parts(objects, n, form, place) != None

# the rest of the form, or null where objects are not of it
def parts(objects: ptr, n: i64, form: ptr, place: ptr) -> ptr:
    for k in range(n):
        form = part(ptr[objects + 8 * k], form, place)
        if form == None:
            return None
    return form

def part(object: ptr, form: ptr, place: ptr) -> ptr:
    kind = i64[form]
    word = i64[form + 8]
    type = ptr[object + 8]
    if kind == {SAME}:
        return form + 16 if ir(i64, "ptrtoint ptr {{}} to i64", object) == word else None
    if kind == {TUPLE}:
        if type != tuple_type or i64[object + 16] != word:
            return None
        return parts(object + 24, word, form + 16, place)
    if kind == {LIST}:
        if type != list_type or i64[object + 16] != word:
            return None
        return parts(ptr[object + 24], word, form + 16, place)
    if kind == {DICT}:
        if type != dict_type:
            return None
        return keyed(object, word, form + 16, place)
    to = ptr[place]
    ptr[to] = object
    ptr[place] = to + 8
    return form + 8

def keyed(object: ptr, count: i64, form: ptr, place: ptr) -> ptr:
    position = ir(ptr, "alloca i64")
    key = ir(ptr, "alloca ptr")
    value = ir(ptr, "alloca ptr")
    i64[position] = 0
    while PyDict_Next(object, position, key, value) != 0:
        if count == 0 or ptr[key] != ptr[form]:
            return None
        form = part(ptr[value], form + 8, place)
        if form == None:
            return None
        count = count - 1
    return form if count == 0 else None
"""
