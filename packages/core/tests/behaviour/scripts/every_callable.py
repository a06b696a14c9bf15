"""Call everything callable in the public modules with wrong arguments."""

import faulthandler
import types
import warnings

import pullback as pb

faulthandler.enable()
warnings.simplefilter("ignore")
modules = [
    pb,
    pb.autograd,
    pb.autograd.graph,
    pb.autograd.function,
    pb.nn.functional,
    pb.utils.hooks,
    pb.backend,
]
BAD = [None, "a", -1, 2**70, 1.5, b"x", object(), [None], {}, print]
for module in modules:
    for name in sorted(set(dir(module))):
        function = getattr(module, name)
        if name.startswith("__") or isinstance(function, types.ModuleType):
            continue
        if not callable(function):
            continue
        for arguments in [
            (),
            *((v,) for v in BAD),
            *((v, v) for v in BAD),
            *((v,) * 5 for v in BAD),
            *((pb.ones(2, 2), v) for v in BAD),
        ]:
            try:
                function(*arguments)
            except SystemError:
                raise
            except Exception:
                pass
