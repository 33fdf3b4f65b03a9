"""The command `cvm`: dispatch to a command, and errors as messages with an exit status.

0 is success, 1 a rejected or failed program, 2 a wrong command line.
"""

import io
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

import cvm
from cvm.dialect.support.diagnostics import printable
from cvm.terminal.command_line import parser
from cvm.terminal.diagnostics import escaped_output, show
from cvm.terminal.usage import Usage, for_cpu, load_modules, within

__all__ = ["Usage", "main", "parser"]
# commands that are functions of another module than that of their name
MODULES = {"cache": "doctor", "import": "importing", "verify": "check"}


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
            )  # a character that a terminal lacks is no reason to fail
    try:
        options = parser().parse_args(argv)
        load_modules(options.load)
        module = import_module(f"cvm.commands.{MODULES.get(options.command, options.command)}")
        command = getattr(module, "importing" if options.command == "import" else options.command)
        with within(options.limits), for_cpu(getattr(options, "cpu", None)), escaped_output():
            status = command(options)
        sys.stdout.flush()
        return status
    except SystemExit as e:  # from argparse: help, version or a usage error
        return e.code if isinstance(e.code, int) else 2
    except Usage as e:
        return _say(f"cvm: {e}", 2)
    except cvm.Error as e:
        show(e.diagnostics, "error")
        return 1
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
        what = f"{type(e).__name__}: {e}"
        return _say(
            f"cvm: internal error: {what}\nplease report this, with what CVM_TRACEBACK=1 adds", 1
        )


def _say(message: str, status: int) -> int:
    print(printable(message), file=sys.stderr)
    return status
