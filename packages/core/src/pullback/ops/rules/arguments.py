"""Types of arguments other than tensors: integers, numbers, strings, sequences of integers."""


def check_number(value, name, argument):
    """Raise TypeError for anything but a number."""
    if not isinstance(value, (int, float, complex)):
        raise TypeError(
            f"{name}(): argument '{argument}' must be Number, not {type(value).__name__}"
        )


def check_float(value, name, argument):
    """Raise TypeError for anything but a real number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(
            f"{name}(): argument '{argument}' must be float, not {type(value).__name__}"
        )


def check_str(value, name, argument):
    """Raise TypeError for anything but a string."""
    if not isinstance(value, str):
        raise TypeError(f"{name}(): argument '{argument}' must be str, not {type(value).__name__}")


def check_sequence(value, name, argument, position):
    """Raise TypeError for anything but a tuple or list, which torch takes as one of ints."""
    if not isinstance(value, (tuple, list)):
        raise TypeError(
            f"{name}(): argument '{argument}' (position {position}) must be tuple of ints, not "
            f"{type(value).__name__}"
        )


def as_int(value, name, argument):
    """Return an integer argument.

    Raises: TypeError for anything else, and for bools.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}(): argument '{argument}' must be int, not {type(value).__name__}")
    return value.__index__()


def integers(value, name, argument):
    """Return an int, or a sequence of ints, as a tuple of ints.

    Raises: TypeError for elements of other types.
    """
    given = value if isinstance(value, (tuple, list)) else (value,)
    for item in given:
        if isinstance(item, bool) or not hasattr(item, "__index__"):
            raise TypeError(
                f"{name}(): argument '{argument}' must be tuple of ints, not {type(item).__name__}"
            )
    return tuple([item.__index__() for item in given])


def sizes_of(sizes, name="", argument=""):
    """Return sizes or dims, given as one number or as a sequence, as a tuple.

    Raises: TypeError for anything else; elements are not checked.
    """
    if hasattr(sizes, "__index__"):
        return (sizes,)
    if not isinstance(sizes, (tuple, list)):
        raise TypeError(
            f"{name}(): argument '{argument}' must be tuple of ints, not {type(sizes).__name__}"
        )
    return tuple(sizes)
