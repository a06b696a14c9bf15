"""Put a huge number into every position of every op's sample calls that holds an integer.

It must end soon, in a result or an error, and take little memory: a loop in Python
over the elements of a result that cannot be made would do neither.

Prints the calls that do not end.
"""

import resource
import signal
import warnings

import pullback as pb
from pullback.ops import ENTRIES
from pullback.testing.checks.basic import call
from pullback.testing.samples import accepts, samples_of

HUGE = 2**33 + 1
SECONDS = 5
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
warnings.simplefilter("ignore")


class Endless(BaseException):
    pass


def stop(number, frame):
    raise Endless


def positions(value, path=()):
    """Yield where the integers in nested lists, tuples and dicts are."""
    if type(value) is int:
        yield path
    elif type(value) in (list, tuple):
        for k, item in enumerate(value):
            yield from positions(item, (*path, k))
    elif type(value) is dict:
        for k, item in value.items():
            yield from positions(item, (*path, k))


def replaced(value, path, new):
    if not path:
        return new
    if type(value) is dict:
        return {
            k: replaced(item, path[1:], new) if k == path[0] else item for k, item in value.items()
        }
    return type(value)(
        replaced(item, path[1:], new) if k == path[0] else item for k, item in enumerate(value)
    )


def run(sample):
    """Return True if the call ends in time."""
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        call(sample)
    except Endless:
        return False
    except Exception:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return True


signal.signal(signal.SIGALRM, stop)
hanging = set()
for entry in ENTRIES.values():
    if not (entry.method or entry.function) or not accepts(entry, pb.float32):
        continue
    for sample in samples_of(entry, pb.float32):
        for name in ("args", "kwargs"):
            value = getattr(sample, name)
            for path in positions(value):
                given = sample._replace(**{name: replaced(value, path, HUGE)})
                if (entry.name, path) not in hanging and not run(given):
                    hanging.add((entry.name, path))
                    print(entry.name, given.args, given.kwargs)
print("done")
