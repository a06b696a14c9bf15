"""Checks of the arguments of normalizations."""

from pullback.ops.rules.dtypes import accumulate_dtype, check_dtype


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


def check_more_than_one(size, count):
    """Raise ValueError if each channel has one value, whose variance is 0."""
    if count == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {size}"
        )


def check_two_dims(name, self):
    """Raise RuntimeError below two dims."""
    if self.ndim < 2:
        raise RuntimeError(f"{name}: expected at least 2 dims, got {self.ndim}")


def check_channels(self, **parameters):
    channels = self.shape[1] if self.ndim > 1 else 0
    for name, value in parameters.items():
        if value is not None and value.numel() != channels:
            raise RuntimeError(f"{name} should contain {channels} elements not {value.numel()}")
