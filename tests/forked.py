"""Work done by a forked process, which may be killed. It starts at once: all is loaded."""

import os
import sys
import traceback
import warnings


def fork(work):
    """Call a function in a process of its own. RETURNS (int): The number of that process."""
    sys.stdout.flush()
    with warnings.catch_warnings():
        # From Python 3.12 on of threads, which the new process does not have; it needs none.
        warnings.simplefilter("ignore", DeprecationWarning)
        number = os.fork()
    if number:
        return number
    try:
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def join(number):
    """Wait for a process. RETURNS (int): Its exit code, or what killed it as a negative number."""
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
