"""``nn.functional``: interpolate and its older names, grid_sample, affine_grid."""

import math

import pytest
from numpy.testing import assert_allclose

import pullback as pb

F = pb.nn.functional
gradcheck, gradgradcheck = pb.autograd.gradcheck, pb.autograd.gradgradcheck


def counted(*shape, dtype=pb.float64):
    return pb.arange(math.prod(shape), dtype=dtype).reshape(shape)


def draw(*shape):
    return pb.randn(*shape, dtype=pb.float64).requires_grad_()


# interpolate


def test_nearest_repeats_elements():
    x = counted(1, 1, 3)
    assert F.interpolate(x, 5).tolist() == [[[0, 0, 1, 1, 2]]]
    assert F.interpolate(x, scale_factor=2).tolist() == [[[0, 0, 1, 1, 2, 2]]]
    assert F.interpolate(counted(1, 1, 4), 2, mode="nearest").tolist() == [[[0, 2]]]
    assert F.interpolate(counted(1, 1, 5), 2, mode="nearest-exact").tolist() == [[[1, 3]]]
    bytes_ = counted(1, 1, 2, 2, dtype=pb.uint8)
    assert F.interpolate(bytes_, (2, 3)).tolist() == [[[[0, 0, 1], [2, 2, 3]]]]


def test_linear_between_centers_or_corners():
    x = pb.tensor([[[0.0, 4.0]]])
    between = F.interpolate(x, 4, mode="linear")
    assert between.tolist() == [[[0, 1, 3, 4]]]
    corners = F.interpolate(x, 5, mode="linear", align_corners=True)
    assert corners.tolist() == [[[0, 1, 2, 3, 4]]]


def test_modes_keep_planes():
    """Every smooth mode reproduces a plane in the middle of an image."""
    x = counted(1, 1, 6, 6)
    for mode in ("bilinear", "bicubic"):
        out = F.interpolate(x, 11, mode=mode, align_corners=True)
        assert_allclose(out[0, 0, 4].numpy(), [12 + 0.5 * i for i in range(11)], atol=1.2e-1)
        assert_allclose(out[0, 0, 4, 4:7].numpy(), [14, 14.5, 15], atol=1e-9)


def test_area_is_adaptive_pooling():
    x = draw(1, 2, 5, 7).detach()
    expected = F.adaptive_avg_pool2d(x, (2, 3)).numpy()
    assert_allclose(F.interpolate(x, (2, 3), mode="area").numpy(), expected)


def test_antialias_uses_every_element():
    x = pb.tensor([[[[0.0, 0.0, 0.0, 8.0, 0.0, 0.0, 0.0, 0.0]]]])
    plain = F.interpolate(x, (1, 2), mode="bilinear")
    smooth = F.interpolate(x, (1, 2), mode="bilinear", antialias=True)
    assert plain.tolist() == [[[[0, 0]]]]
    assert smooth[0, 0, 0, 0] > smooth[0, 0, 0, 1] > 0


def test_scale_factor_is_kept_or_recomputed():
    x = pb.tensor([[[0.0, 1.0, 2.0, 3.0, 4.0]]])
    kept = F.interpolate(x, scale_factor=1.5, mode="linear")
    again = F.interpolate(x, scale_factor=1.5, mode="linear", recompute_scale_factor=True)
    assert kept.shape == again.shape == (1, 1, 7)
    assert_allclose(kept[0, 0, 1].item(), 0.5, rtol=1e-6)
    assert_allclose(again[0, 0, 1].item(), 1.5 * 5 / 7 - 0.5, rtol=1e-6)


def test_older_names_warn():
    x = counted(1, 1, 2, 2)
    with pytest.warns(UserWarning, match="`nn.functional.upsample` is deprecated"):
        assert F.upsample(x, scale_factor=2).tolist() == F.interpolate(x, 4).tolist()
    with pytest.warns(UserWarning, match="upsample_nearest"):
        assert F.upsample_nearest(x, 4).tolist() == F.interpolate(x, 4).tolist()
    with pytest.warns(UserWarning, match="upsample_bilinear"):
        out = F.upsample_bilinear(x, 3)
    assert out[0, 0, 1].tolist() == [1, 1.5, 2]


INTERPOLATIONS = [
    ((1, 2, 3), (5, None, "nearest"), {}),
    ((1, 1, 4), (7, None, "linear"), {}),
    ((1, 1, 3, 4), ((5, 2), None, "bilinear", True), {}),
    ((1, 1, 3, 4), (None, 1.7, "bicubic"), {}),
    ((1, 1, 2, 2, 3), (3, None, "trilinear"), {}),
    ((1, 1, 5, 4), ((2, 3), None, "area"), {}),
    ((1, 1, 6, 5), ((3, 2), None, "bicubic"), {"antialias": True}),
]


@pytest.mark.parametrize(("shape", "args", "options"), INTERPOLATIONS)
def test_gradients_of_interpolate(shape, args, options):
    x = draw(*shape)
    assert gradcheck(lambda t: F.interpolate(t, *args, **options), (x,))
    assert gradgradcheck(lambda t: F.interpolate(t, *args, **options), (x,))


def test_node_names():
    x = draw(1, 1, 3, 3)
    for mode, name in (
        ("nearest", "UpsampleNearest2DBackward0"),
        ("bilinear", "UpsampleBilinear2DBackward0"),
        ("bicubic", "UpsampleBicubic2DBackward0"),
        ("nearest-exact", "UpsampleNearestExact2DBackward0"),
    ):
        assert F.interpolate(x, 5, mode=mode).grad_fn.name() == name


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("column", range(6))
def test_infinity_stays_within_an_antialiasing_filter(mode, column):
    x = counted(1, 1, 7, 6)
    x[..., column] = math.inf
    clean = F.interpolate(counted(1, 1, 7, 6), (9, 4), mode=mode, antialias=True)
    out = F.interpolate(x, (9, 4), mode=mode, antialias=True)
    reached = F.interpolate((x == math.inf).double(), (9, 4), mode=mode, antialias=True) != 0
    assert not out[reached].isfinite().any()
    assert_allclose(out[~reached].numpy(), clean[~reached].numpy(), rtol=1e-12)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos"])
def test_antialiasing_copies_dims_that_keep_their_size(mode):
    x = draw(1, 2, 5, 6)
    assert F.interpolate(x, (5, 6), mode=mode, antialias=True).tolist() == x.tolist()
    one = F.interpolate(x, scale_factor=(1.1, 0.5), mode=mode, antialias=True)
    assert one.tolist() == F.interpolate(x, (5, 3), mode=mode, antialias=True).tolist()


@pytest.mark.parametrize(("rank", "mode"), [(1, "linear"), (2, "bilinear"), (3, "trilinear")])
@pytest.mark.parametrize("corners", [True, False])
def test_linear_modes_copy_dims_that_keep_their_size(rank, mode, corners):
    x = draw(1, 2, *[5] * rank)
    out = F.interpolate(x, scale_factor=1.1, mode=mode, align_corners=corners)
    assert out.tolist() == x.tolist()
    one = F.interpolate(x, scale_factor=(*[2.0] * (rank - 1), 1.1), mode=mode)
    like = F.interpolate(x, (*[10] * (rank - 1), 5), mode=mode)
    assert one.tolist() == like.tolist()


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "linear"])
def test_sizes_beyond_any_memory(mode):
    x = counted(1, 1, 3)
    for size in (2**40, 2**60):
        with pytest.raises((MemoryError, RuntimeError)):
            F.interpolate(x, size, mode=mode)
    with pytest.raises(RuntimeError, match="overflow"):
        F.interpolate(x, scale_factor=1e300, mode=mode)


def test_infinity_stays_where_it_is():
    x = pb.tensor([[[1.0, math.inf, 3.0, 4.0]]])
    assert F.interpolate(x, 8, mode="linear")[0, 0, -2:].tolist() == [3.75, 4.0]


REFUSED = {
    "no size": (ValueError, "either size or scale_factor should be defined", (), {}),
    "both": (ValueError, "only one of size or scale_factor should be defined", (8, 2), {}),
    "size's length": (ValueError, "must have the same number of spatial dimensions", ((8,),), {}),
    "scales' length": (
        ValueError,
        "must have the same number of spatial dimensions",
        (),
        {"scale_factor": (2.0,)},
    ),
    "zero size": (RuntimeError, "Input and output sizes should be greater than 0", (0,), {}),
    "mode": (NotImplementedError, "got foo", (8,), {"mode": "foo"}),
    "rank": (
        NotImplementedError,
        "Got 4D input, but linear mode needs 3D input",
        (8,),
        {"mode": "linear"},
    ),
    "corners": (ValueError, "align_corners option can only be set", (8,), {"align_corners": True}),
    "antialias": (ValueError, "Anti-alias option is restricted", (8,), {"antialias": True}),
    "recompute": (
        ValueError,
        "recompute_scale_factor is not meaningful with an explicit size",
        (8,),
        {"recompute_scale_factor": True},
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    kind, message, args, options = REFUSED[name]
    with pytest.raises(kind, match=message):
        F.interpolate(counted(1, 2, 4, 5), *args, **options)


def test_refused_types():
    for options in ({"size": 1.5}, {"scale_factor": "a"}):
        with pytest.raises(TypeError):
            F.interpolate(counted(1, 2, 4, 5), **options)


def test_refused_dtypes():
    for dtype, mode in ((pb.int64, "nearest"), (pb.bool, "bilinear"), (pb.complex64, "bicubic")):
        with pytest.raises(NotImplementedError):
            F.interpolate(pb.zeros(1, 1, 2, 2).to(dtype), 3, mode=mode)


# grid_sample and affine_grid


def points(*pairs):
    return pb.tensor([[list(pairs)]], dtype=pb.float64)


def test_grid_sample_reads_between_elements():
    x = pb.tensor([[[[1.0, 2.0], [3.0, 4.0]]]], dtype=pb.float64)
    grid = points([-1.0, -1.0], [1.0, 1.0], [0.0, 0.0], [1.0, -1.0], [3.0, 0.0])
    out = F.grid_sample(x, grid, align_corners=True)
    assert out[0, 0, 0].tolist() == [1, 4, 2.5, 2, 0]
    border = F.grid_sample(x, grid, padding_mode="border", align_corners=True)
    assert border[0, 0, 0].tolist() == [1, 4, 2.5, 2, 3]
    mirrored = F.grid_sample(x, grid, padding_mode="reflection", align_corners=True)
    assert mirrored[0, 0, 0].tolist() == [1, 4, 2.5, 2, 2]
    nearest = F.grid_sample(x, grid * 0.9, "nearest", align_corners=False)
    assert nearest[0, 0, 0].tolist() == [1, 4, 1, 2, 0]


def test_identity_map():
    x = draw(2, 3, 4, 5).detach()
    theta = pb.tensor([[1.0, 0, 0], [0, 1, 0]], dtype=pb.float64).expand(2, 2, 3)
    for corners in (False, True):
        grid = F.affine_grid(theta, (2, 3, 4, 5), align_corners=corners)
        out = F.grid_sample(x, grid, align_corners=corners)
        assert_allclose(out.numpy(), x.numpy(), atol=1e-12)


def test_affine_grid_points():
    theta = pb.tensor([[[2.0, 0, 0.5], [0, 1, 0]]])
    grid = F.affine_grid(theta, (1, 1, 1, 2), align_corners=False)
    assert grid.tolist() == [[[[-0.5, 0], [1.5, 0]]]]
    volume = F.affine_grid(pb.zeros(1, 3, 4), (1, 1, 2, 2, 2), align_corners=True)
    assert volume.shape == (1, 2, 2, 2, 3)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_gradients_of_grid_sample(mode, padding):
    x = draw(1, 2, 3, 3)
    grid = points([-0.83, 0.21], [0.37, -1.59], [1.13, 0.07]).requires_grad_()

    def run(*args):
        return F.grid_sample(*args, mode, padding, align_corners=False)

    assert gradcheck(run, (x, grid))
    assert gradgradcheck(run, (x, grid))


def test_nearest_gives_the_grid_zeros():
    x, grid = draw(1, 1, 3, 3), points([-0.83, 0.21], [7.0, 0.0]).requires_grad_()
    F.grid_sample(x, grid, "nearest", align_corners=False).sum().backward()
    assert grid.grad.abs().sum() == 0
    assert x.grad.sum() == 1


def test_corners_not_given_warn():
    with pytest.warns(UserWarning, match="align_corners=False"):
        F.grid_sample(pb.zeros(1, 1, 2, 2), pb.zeros(1, 1, 1, 2))
    with pytest.warns(UserWarning, match="align_corners=False"):
        F.affine_grid(pb.zeros(1, 2, 3), (1, 1, 2, 2))


def sample(shape, grid, *args):
    return F.grid_sample(pb.zeros(shape), pb.zeros(grid), *args, align_corners=False)


GRID_REFUSED = {
    "mode": (ValueError, "expected mode to be", lambda: sample((1, 1, 2, 2), (1, 1, 1, 2), "foo")),
    "padding": (
        ValueError,
        "expected padding_mode to be",
        lambda: sample((1, 1, 2, 2), (1, 1, 1, 2), "nearest", "foo"),
    ),
    "batch": (RuntimeError, "to have same batch size", lambda: sample((1, 1, 2, 2), (2, 1, 1, 2))),
    "last dim": (
        RuntimeError,
        "to have size 2 in last dimension",
        lambda: sample((1, 1, 2, 2), (1, 1, 1, 3)),
    ),
    "empty": (
        RuntimeError,
        "non-empty spatial dimensions",
        lambda: sample((1, 1, 0, 2), (1, 1, 1, 2)),
    ),
    "bicubic volume": (
        RuntimeError,
        "bicubic interpolation only supports 4D input",
        lambda: sample((1, 1, 2, 2, 2), (1, 1, 1, 1, 3), "bicubic"),
    ),
    "theta": (
        ValueError,
        "Expected a batch of 2D affine matrices of shape Nx2x3",
        lambda: F.affine_grid(pb.zeros(1, 3, 4), (1, 1, 2, 2)),
    ),
    "theta's dtype": (
        ValueError,
        "Expected theta to have floating point type",
        lambda: F.affine_grid(pb.zeros(1, 2, 3, dtype=pb.int64), (1, 1, 2, 2)),
    ),
    "size": (
        ValueError,
        "Expected non-zero, positive output size",
        lambda: F.affine_grid(pb.zeros(1, 2, 3), (1, 1, 0, 2)),
    ),
    "size's length": (
        NotImplementedError,
        "affine_grid only supports 4D and 5D sizes",
        lambda: F.affine_grid(pb.zeros(1, 2, 3), (1, 1, 2)),
    ),
    "theta's batch": (
        RuntimeError,
        "Expected size for first two dimensions of batch2",
        lambda: F.affine_grid(pb.zeros(1, 2, 3), (2, 1, 2, 2), align_corners=True),
    ),
}


@pytest.mark.parametrize("name", GRID_REFUSED)
def test_refused_grids(name):
    kind, message, call = GRID_REFUSED[name]
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_images_of_bytes_are_rounded_after_each_dim(mode, align_corners):
    """Halves are rounded up; rows are resampled first, as Pillow does."""

    def interpolated(x, size):
        found = F.interpolate(x.double(), size=size, mode=mode, align_corners=align_corners)
        return (found + 0.5 + 1e-9).floor().clamp(0, 255)

    x = pb.tensor(
        [[255, 0, 255, 0], [0, 0, 255, 9], [7, 255, 3, 255], [1, 2, 4, 250]], dtype=pb.uint8
    ).reshape(1, 1, 4, 4)
    found = F.interpolate(x, size=(3, 7), mode=mode, align_corners=align_corners)
    assert found.dtype == pb.uint8
    assert found.tolist() == interpolated(interpolated(x, (4, 7)), (3, 7)).tolist()


def test_a_point_at_nan_reads_no_element():
    for position in (math.nan, math.inf):
        image = pb.ones(1, 1, 1, 2, requires_grad=True)
        grid = pb.tensor([[[[position, 0.0]]]])
        out = F.grid_sample(image, grid, align_corners=False)
        out.sum().backward()
        assert out.isnan().all()
        assert image.grad.tolist() == [[[[0.0, 0.0]]]]
