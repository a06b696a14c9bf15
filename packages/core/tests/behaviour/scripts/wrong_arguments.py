"""Call public functions, methods and setters with arguments of every wrong kind.

Arguments: functions, methods or attributes; then which half of them.
"""

import faulthandler
import itertools
import math
import sys
import warnings

import pullback as pb

faulthandler.enable()
warnings.simplefilter("ignore")

FUNCTIONS = """
add sub mul div pow neg exp log tanh sigmoid relu sqrt abs sum mean amax argmax matmul mm bmm addmm
reshape transpose permute squeeze unsqueeze select narrow cat stack where index_select gather
index_put zeros ones full arange randn rand randint zeros_like ones_like full_like rand_like
randn_like empty empty_like tensor as_tensor from_numpy from_dlpack clone softmax log_softmax
unbind split chunk t detach masked_fill manual_seed set_rng_state Generator Size no_grad enable_grad
set_grad_enabled is_grad_enabled promote_types result_type set_default_dtype device
""".split()
METHODS = """
backward register_hook register_post_accumulate_grad_hook retain_grad requires_grad_ detach detach_
add sub mul div pow neg exp log tanh sigmoid relu sqrt abs sum mean amax argmax matmul mm bmm addmm
view reshape transpose permute expand squeeze unsqueeze select narrow index_select gather index_put
index_put_ clone copy_ contiguous to softmax log_softmax unbind split chunk t zero_ fill_ add_ sub_
mul_ div_ masked_fill masked_fill_ item tolist numpy size stride dim numel is_contiguous data_ptr
__getitem__ __setitem__ __add__ __radd__ __iadd__ __pow__ __rpow__ __matmul__ __eq__ __lt__ __len__
__bool__ __int__ __float__ __index__ __iter__ __contains__ __array__ __dlpack__ __reduce_ex__
__deepcopy__ __repr__ __format__ __hash__
""".split()
AUTOGRAD = {
    "autograd": "backward grad Variable set_multithreading_enabled",
    "autograd.graph": "get_gradient_edge increment_version saved_tensors_hooks save_on_cpu "
    "disable_saved_tensors_hooks register_multi_grad_hook GradientEdge Node",
    "autograd.function": "once_differentiable Function",
    "nn.functional": "softmax log_softmax nll_loss cross_entropy dropout relu",
    "utils.hooks": "RemovableHandle unserializable_hook warn_if_has_hooks",
}


def tensors():
    return [
        pb.ones(2, 3, requires_grad=True),
        pb.zeros(0),
        pb.tensor(1),
        pb.ones(3, requires_grad=True) * 2,
        pb.ones(1).expand(4),
        pb.tensor([True, False]),
    ]


BAD = [
    None,
    "a",
    -1,
    3,
    2**62,
    2**70,
    -(2**63),
    1.5,
    math.nan,
    1j,
    b"x",
    object(),
    [],
    [None],
    (1, "a"),
    {},
    {"a": 1},
    print,
    int,
    slice(None),
    ...,
    True,
    NotImplemented,
]


def attempts(extra):
    values = BAD + extra
    yield ()
    for value in values:
        yield (value,)
    yield from itertools.product(values, repeat=2)
    for value in values:
        yield (value, value, value)
        yield (extra[0], value, value)
        yield (value,) * 9


def call(function, arguments, keywords=None):
    try:
        function(*arguments, **(keywords or {}))
    except SystemError:
        raise  # a C function that broke the rules for reporting errors
    except Exception:
        pass


def targets():
    for name in FUNCTIONS:
        yield getattr(pb, name)
    for module, names in AUTOGRAD.items():
        where = pb
        for part in module.split("."):
            where = getattr(where, part)
        for name in names.split():
            yield getattr(where, name)


def run_functions(part):
    everything = list(targets())
    for function in everything[part::2]:
        for arguments in attempts(tensors()):
            call(function, arguments)
        for keyword in ("dtype", "device", "out", "requires_grad", "dim", "generator", "nonsense"):
            for value in BAD:
                call(function, (pb.ones(2),), {keyword: value})


def run_methods(part):
    for name in METHODS[part::2]:
        for subject in tensors():
            extra = tensors()
            for value in [(), *((v,) for v in BAD + extra)]:
                call(getattr(subject, name), value)
            for value in BAD:
                call(getattr(subject, name), (value, value))
                call(getattr(subject, name), (0, value))
                call(getattr(subject, name), (extra[0], value))
                call(getattr(subject, name), (), {"nonsense": value})


def run_attributes(part):
    names = "grad data requires_grad grad_fn is_leaf shape _version dtype device"
    for name in names.split() if part == 0 else ["grad_dtype"]:
        for subject in tensors():
            for value in BAD + tensors():
                call(setattr, (subject, name, value))
            call(delattr, (subject, name))
            call(repr, (subject,))


{"functions": run_functions, "methods": run_methods, "attributes": run_attributes}[sys.argv[1]](
    int(sys.argv[2])
)
pb.set_grad_enabled(True)
x = pb.ones(2, requires_grad=True)
(x * x).sum().backward()
assert x.grad.tolist() == [2.0, 2.0]
