"""Views as copies: ``expand_copy`` and its like, one for each view that torch has one of."""

from pullback.ops.shape import diagonal, slicing, split, views  # their entries come first
from pullback.ops.shape.rearrange import row_major
from pullback.ops.table.schema import ENTRIES, op, ops

__all__ = []

_SOURCES = (diagonal, slicing, split, views)
_NAMES = {  # of views, where a copy has another name than its view
    "unfold_copy": "unfold_dim",
    "detach_copy": "alias",  # as in torch, it is recorded
    **{
        f"{view}_copy": view
        for view in (
            *("alias", "as_strided", "diagonal", "expand", "permute", "select", "slice"),
            *("squeeze", "t", "transpose", "unbind", "unsqueeze"),
            *("view", "view_as_complex", "view_as_real"),
            *(name for name in ENTRIES if name.startswith("split")),
        )
    },
}


def _copied(view):
    keywords = [argument.name for argument in ENTRIES[view].arguments if argument.keyword_only]

    def composite(*arguments):
        count = len(arguments) - len(keywords)
        named = dict(zip(keywords, arguments[count:]))
        found = getattr(ops, view)(*arguments[:count], **named)
        return tuple(map(row_major, found)) if isinstance(found, tuple) else row_major(found)

    return composite


def _samples_of(entry):
    """Return the view's samples, without those that spread sizes over several arguments."""
    most = sum(not argument.keyword_only for argument in entry.arguments)
    return [
        case._replace(skip={k: why for k, why in case.skip.items() if k != "alias"})
        for case in entry.cases()
        if len(case.args) <= most
    ]


for _name, _view in _NAMES.items():
    _entry = ENTRIES[_view]
    _arguments = _entry.signature.partition("(")[2]
    op(
        f"{_name}({_arguments}",
        composite=_copied(_view),
        method=False,
        dtypes=_entry.dtypes,
        out=_entry.returns == "Tensor",
        ref=_entry.ref,
        samples=_samples_of(_entry),
        doc=f"Return a copy of what `{_entry.method or _view}` shows of the tensor.",
    )
