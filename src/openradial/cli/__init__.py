"""The command line: parsing and printing only."""

import atexit
import gc
import os
import sys
from contextlib import suppress

from openradial.errors import OpenRadialError, OptionError, require

FAILURE, WRONG_USE, BROKEN_INPUTS, INTERRUPTED = 1, 2, 3, 130  # exit codes, see docs/command-line.md


def main() -> None:
    """Run the command ``openradial``. An error is one line; exit code 2 for wrong use, 1 for failure."""
    # names of files need not be Unicode: \udcff in JSON stands for the byte 0xff
    getattr(sys.stdout, "reconfigure", lambda **options: None)(errors="backslashreplace")
    gc.set_threshold(20_000)  # else it looks again and again through the objects of torch while that is imported
    atexit.register(gc.freeze)  # else Python looks for cycles among all objects of torch at its end
    try:
        for package in ("typer", "rich"):
            require(package, "cli", "the command openradial")
        from openradial.cli.app import command

        command()(prog_name="openradial")
    except OpenRadialError as error:
        _fail(str(error), WRONG_USE if isinstance(error, OptionError) else FAILURE)
    except KeyboardInterrupt:
        _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has closed it, so nothing can be reported
        sys.exit(FAILURE)
    except OSError as error:
        with suppress(OSError):  # Python would try to write the rest of the output again at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        where = "the output" if error.filename is None else error.filename
        _fail(f"{where} cannot be read or written ({error.strerror or error})", FAILURE)


def _fail(message: str, code: int) -> None:
    sys.stderr.write(f"error: {message}\n")
    sys.exit(code)
