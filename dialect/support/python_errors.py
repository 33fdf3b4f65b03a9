"""Errors of calls that are Python's exceptions, too."""

import builtins

from .diagnostics import CallError, Diagnostic, Span

_KINDS: dict[str, type[CallError]] = {}


def kind_of(name: str) -> type[CallError]:
    """The class of the errors of calls that are also one of Python's exceptions."""
    if name not in _KINDS:
        _KINDS[name] = type(name, (CallError, getattr(builtins, name)), {"__module__": "cvm"})
    return _KINDS[name]


def call_error(message: str, span: Span) -> CallError:
    """The error of a message that may begin with the name of one of Python's exceptions."""
    name, _, text = message.partition(": ")
    base = getattr(builtins, name, None) if name.isidentifier() else None
    if isinstance(base, type) and issubclass(base, Exception):
        return kind_of(name)(Diagnostic(text or name, span, "run"))
    return CallError(Diagnostic(message, span, "run"))
