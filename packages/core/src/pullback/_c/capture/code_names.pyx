# build: small
"""What code of a program names, and what it does, as far as its instructions show."""

import dis
import types

from pullback._c.base.types cimport NODE_PYTHON, pb_node
from pullback._c.graph.tensor cimport Tensor

__all__ = []

cdef int IS_OP = dis.opmap["IS_OP"], LOAD_CONST = dis.opmap["LOAD_CONST"]
cdef int MATCH_CLASS = dis.opmap["MATCH_CLASS"], IMPORT_NAME = dis.opmap["IMPORT_NAME"]
cdef set BY_NAME = {
    *("getattr", "hasattr", "setattr", "delattr", "attrgetter", "methodcaller", "vars", "__dict__"),
}
cdef dict names_of = {}         # of code objects


cdef tuple code_names(object code):
    """Return the globals and attributes that code names, its texts, and what else it does.

    Functions inside are included.
    """
    cdef set found, texts
    cdef int does
    known = names_of.get(code)
    if known is not None:
        return known
    found, texts = set(code.co_names), set()
    does = COMPARES_OBJECTS if "id" in found or compares_objects(code) else 0
    if has_operation(code, MATCH_CLASS):
        does |= ASKS_BY_NAME            # by names in a constant
    if has_operation(code, IMPORT_NAME):
        does |= IMPORTS
    if not found.isdisjoint(BY_NAME):
        does |= ASKS_BY_NAME
        if names_later(code):
            does |= NAMES_LATER
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner, inner_texts, inner_does = code_names(constant)
            found |= inner
            texts |= inner_texts
            does |= inner_does
        elif isinstance(constant, str):
            texts.add(constant)
        elif isinstance(constant, tuple):
            texts.update([one for one in constant if isinstance(one, str)])
    if len(names_of) > 4096:
        names_of.clear()
    known = names_of[code] = frozenset(found), frozenset(texts), does
    return known


cdef bint has_operation(object code, int operation):
    """Return True for code with an instruction of a kind."""
    cdef bytes text = code.co_code
    cdef int i
    for i in range(0, len(text), 2):
        if text[i] == operation:
            return True
    return False


cdef bint compares_objects(object code):
    """Return True for code with an ``is``, but to None, True or False."""
    cdef bytes text = code.co_code
    cdef int i
    for i in range(0, len(text), 2):
        if text[i] == IS_OP and (i < 2 or text[i - 2] != LOAD_CONST or (
                code.co_consts[text[i - 1]] not in (None, True, False))):
            return True
    return False


cdef bint names_later(object code):
    """Return True for code that may get attributes by names that are not in it."""
    cdef list operations = list(dis.get_instructions(code))
    for position, one in enumerate(operations):
        if one.argval in ("vars", "attrgetter", "methodcaller", "__dict__") and (
                one.opname.startswith("LOAD_")):
            return True
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME") and one.argval in (
                "getattr", "hasattr", "setattr", "delattr"):
            if not has_constant_name(operations, position + 1):
                return True
    return False


cdef object last_of(object variable):
    """Return the variable of an instruction, the last of two."""
    return variable[-1] if isinstance(variable, tuple) else variable


cdef list uses_of(object code, str name, object module):
    """Return what code uses of a module, or of modules and classes in it.

    It has the module by the global name, or imports it.
    """
    cdef list found = []
    cdef bint imports = False
    cdef object local = None
    value = None
    for one in dis.get_instructions(code):
        if one.opname == "IMPORT_NAME":
            imports = one.argval == name
        elif imports and one.opname == "IMPORT_FROM":
            found.append(getattr(module, one.argval, None))
        elif imports and one.opname.startswith("STORE_FAST") and local is None:
            local = one.argval if isinstance(one.argval, str) else one.argval[0]
            imports = False
        elif one.opname.startswith("LOAD_FAST"):
            value = module if local is not None and last_of(one.argval) == local else None
        elif one.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            value = module if one.argval == name else None
        elif one.opname in ("LOAD_ATTR", "LOAD_METHOD") and value is not None:
            value = getattr(value, one.argval, None)
            if not isinstance(value, types.ModuleType):
                found.append(value)
                value = value if isinstance(value, type) else None
        elif one.opname not in ("CACHE", "PUSH_NULL", "EXTENDED_ARG"):
            value = None
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found += uses_of(constant, name, module)
    return found


cdef bint reads_texts(object code, object some):
    """Return True for code that may use one of some texts as a key, or pass it on.

    In a display of a dict, or as the name of an argument, it does not.
    """
    cdef list operations = instructions_of(code)
    cdef Py_ssize_t position
    for position in range(len(operations) - 1):
        one, other = operations[position], operations[position + 1].opname
        if one.opname != "LOAD_CONST":
            continue
        if isinstance(one.argval, str):
            if one.argval in some and not other.startswith("LOAD_"):
                return True
        elif isinstance(one.argval, tuple) and not some.isdisjoint(
                [text for text in one.argval if isinstance(text, str)]):
            if other not in ("BUILD_CONST_KEY_MAP", "CALL_KW", "CALL_FUNCTION_KW"):
                return True
    return any([reads_texts(constant, some) for constant in code.co_consts
                if isinstance(constant, types.CodeType)])


cdef bint uses_by_text(object code, str name):
    """Return True if code takes nothing but items with constant keys of what ``x.name`` lists."""
    cdef list operations = instructions_of(code)
    cdef set variables = set()
    cdef Py_ssize_t position
    cdef list inner = [constant for constant in code.co_consts
                       if isinstance(constant, types.CodeType)]
    for position, one in enumerate(operations):
        if one.argval != name:
            continue
        after = operations[position + 1:position + 5]
        kinds = [each.opname for each in after]
        if kinds[:2] == ["LOAD_CONST", "BINARY_SUBSCR"] and is_text_key(after[2:]):
            continue
        if kinds[:3] == ["GET_ITER", "FOR_ITER", "STORE_FAST"]:
            variables.add(after[2].argval)
        elif kinds[:1] != ["GET_ITER"] or kinds[1:2] == ["FOR_ITER"] or not all(
                [takes_by_text(instructions_of(each), items_of(each)) for each in inner]):
            return False                # the last: a comprehension is a function of its own
    return takes_by_text(operations, variables) and not any(
        [name in each.co_names for each in inner])


cdef set items_of(object code):
    """Return the variables for the items over which a comprehension goes."""
    cdef list operations = instructions_of(code)
    return {other.argval for one, other in zip(operations, operations[1:])
            if one.opname == "FOR_ITER" and other.opname.startswith("STORE_FAST")}


cdef bint takes_by_text(list operations, set variables):
    """Return True if code takes nothing but items with constant keys of some variables."""
    cdef Py_ssize_t position
    for position, one in enumerate(operations):
        used = one.argval if type(one.argval) is tuple else (one.argval,)
        if "FAST" not in one.opname or variables.isdisjoint(used):
            continue
        if one.opname != "STORE_FAST" and not (
                one.opname.startswith("LOAD_FAST") and type(one.argval) is str
                and is_text_key(operations[position + 1:position + 3])):
            return False
    return True


cdef bint is_text_key(list operations):
    return len(operations) >= 2 and operations[0].opname == "LOAD_CONST" and (
        isinstance(operations[0].argval, str)
        and operations[1].opname in ("BINARY_SUBSCR", "STORE_SUBSCR"))


cdef list instructions_of(object code):
    return [one for one in dis.get_instructions(code)
            if one.opname not in ("CACHE", "EXTENDED_ARG", "NOP", "PUSH_NULL", "KW_NAMES")]


cdef bint has_constant_name(list operations, Py_ssize_t position):
    """Return True if the second argument of a call, whose first one is pushed next, is a text."""
    cdef int depth = 0
    cdef bint found = False
    for one in operations[position:]:
        if found:
            if one.opname.startswith(("CALL", "PRECALL", "KW_NAMES")):
                return True
            if one.opname.startswith(("FORMAT_", "BUILD_", "BINARY_")):
                return False
            continue
        if one.opname in ("PUSH_NULL", "CACHE", "NOP", "EXTENDED_ARG", "PRECALL", "RESUME"):
            continue
        effect = dis.stack_effect(one.opcode, one.arg, jump=False)
        if depth == 1 and effect > 0:
            if one.opname != "LOAD_CONST" or not isinstance(one.argval, str):
                return False
            found = True
        depth += effect
        if depth < 0 or depth > 1:
            return False
    return False


cdef list code_of_node(pb_node *node):
    """Return the code of the program that runs with a node: hooks, and a custom function's node."""
    cdef list found = []
    if node.kind == NODE_PYTHON:
        found.append(<object>node.wrapper)
    if node.extra == NULL:
        return found
    if node.extra.tensor_hooks != NULL:
        found += [hook for _, hook in (<dict>node.extra.tensor_hooks).values()]
    if node.extra.pre_hooks != NULL:
        found += (<dict>node.extra.pre_hooks).values()
    if node.extra.post_hooks != NULL:
        found += (<dict>node.extra.post_hooks).values()
    if node.extra.saved_hooks != NULL:
        found += (<dict>node.extra.saved_hooks).values()
    return found


cdef Py_ssize_t count_hooks(Tensor tensor):
    """Return how many hooks run with a tensor's gradient; one more if the tensor keeps it."""
    cdef Py_ssize_t count = 0
    if tensor.extra != NULL and tensor.extra.hooks != NULL:
        count += len(<object>tensor.extra.hooks)
    if tensor.extra != NULL and tensor.extra.post_hooks != NULL:
        count += len(<object>tensor.extra.post_hooks)
    if tensor.node != NULL and tensor.node.extra != NULL:
        if tensor.node.extra.tensor_hooks != NULL:
            count += len(<object>tensor.node.extra.tensor_hooks)
        if tensor.node.extra.retain != NULL:
            count += len(<object>tensor.node.extra.retain)
    return count
