"""Checks of the arguments of normalizations."""

from pullback.ops.rules.dims import accumulate_dtype, check_dtype

# -- checks ----------------------------------------------------------------------------------------


def check_floating(name, self, complex_too=False):
    check_dtype(name, self, "fc" if complex_too else "f")


def check_parameters(self, *parameters):
    """Parameters have the input's dtype; those of 16-bit inputs may have float32."""
    for parameter in parameters:
        if (
            parameter is not None
            and parameter.dtype != self.dtype
            and (parameter.dtype != accumulate_dtype(self.dtype))
        ):
            raise RuntimeError("mixed dtype (CPU): all inputs must share same datatype.")


def check_more_than_one(self, count):
    if count == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {self.shape}"
        )


def count_of(sizes):
    count = 1
    for size in sizes:
        count *= size
    return count


# -- batch and instance ----------------------------------------------------------------------------


def check_channels(self, **parameters):
    channels = self.shape[1] if self.ndim > 1 else 0
    for name, value in parameters.items():
        if value is not None and value.numel() != channels:
            raise RuntimeError(f"{name} should contain {channels} elements not {value.numel()}")
