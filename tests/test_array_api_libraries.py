"""SciPy and scikit-learn compute on tensors through the array API namespace, as on NumPy arrays.

SciPy reads SCIPY_ARRAY_API when it is imported, so that one other process runs every expression.
"""

import json

import pytest

SPECIAL = (
    *("chdtr(x, y)", "entr(x)", "erf(x)", "erfc(x)", "expit(x)", "gammainc(x, y)", "gammaln(x)"),
    *("i0(x)", "i0e(x)", "i1(x)", "log_ndtr(x)", "logit(x / 4)", "ndtr(x)", "ndtri(x / 4)"),
    *("rel_entr(x, y)", "stdtr(x, y)", "xlogy(x, y)", "betainc(x, y, 0.3)"),
    *("logsumexp(x)", "logsumexp(m, axis=1)", "softmax(m, axis=0)", "log_softmax(x)"),
)
STATS = (
    *("circmean(x)", "describe(x)", "entropy(x)", "gmean(x)", "hmean(x)", "iqr(x)", "kstat(x)"),
    *("kurtosis(m, axis=1)", "median_abs_deviation(x)", "mode(x)", "moment(x, 2)", "sem(m)"),
    *("skew(x)", "tmean(x)", "trim_mean(m, 0.1)", "tvar(x)", "variation(x)", "zscore(m)"),
    *("zmap(x, y)", "rankdata(x) + 0 * x", "quantile(x, 0.3)", "lmoment(x)", "boxcox_llf(0.5, x)"),
    *("bartlett(x, y)", "chisquare(x, x[[3, 2, 1, 0]])", "combine_pvalues(x / 4)"),
    *("f_oneway(x, y)", "false_discovery_control(x / 4)", "jarque_bera(x)", "pearsonr(x, y)"),
    *("mannwhitneyu(x, y)", "normaltest(m[0])", "power_divergence(x)", "skewtest(m[0])"),
    *("ttest_1samp(x, 1.0)", "ttest_ind(x, y)", "ttest_rel(x, y)", "wilcoxon(x, y)"),
)
PREPROCESSING = (
    *("preprocessing.StandardScaler().fit_transform(m)", "preprocessing.normalize(m)"),
    "preprocessing.MinMaxScaler().fit_transform(m)",
    "preprocessing.LabelEncoder().fit_transform(c)",
    "preprocessing.PolynomialFeatures().fit_transform(m)",
    "model_selection.train_test_split(m, random_state=0)[0]",
)  # fmt: skip
MODELS = (
    "abs(decomposition.PCA(2, svd_solver='full').fit_transform(m))",
    "linear_model.Ridge(solver='svd').fit(m, t).coef_",
    "linear_model.RidgeClassifier(solver='svd').fit(m, c).predict(m)",
    "linear_model.LogisticRegression().fit(m, c).coef_",
    "discriminant_analysis.LinearDiscriminantAnalysis().fit(m, c).predict(m)",
    "naive_bayes.GaussianNB().fit(m, c).predict_proba(m)",
    "kernel_approximation.Nystroem(n_components=5, random_state=0).fit_transform(m)",
    "model_selection.cross_val_predict(linear_model.Ridge(solver='svd'), m, t, cv=3)",
)
DECOMPOSITIONS = {  # expressions that need these functions of linalg
    "abs(decomposition.PCA(2, svd_solver='covariance_eigh').fit_transform(m))": "eigh",
    "linear_model.RidgeCV().fit(m, t).coef_": "eigh",
    "mixture.GaussianMixture(2, init_params='random', random_state=0).fit(m).means_": "cholesky",
}
METRICS = (
    *("accuracy_score(c, d)", "confusion_matrix(c, d)", "f1_score(c, d)", "log_loss(c, p)"),
    *("mean_squared_error(t, m[:, 0])", "r2_score(t, m[:, 0])", "roc_auc_score(c, p)"),
    *("pairwise.rbf_kernel(m)", "pairwise.euclidean_distances(m)", "pairwise.cosine_similarity(m)"),
    "pairwise.manhattan_distances(m)",
)
EXPRESSIONS = {
    "scipy": [
        *(f"special.{call}" for call in SPECIAL),
        *(f"stats.{call}" for call in STATS),
        *("integrate.trapezoid(x)", "integrate.cumulative_trapezoid(x)"),
        "cluster.vq.whiten(m)",
        "differentiate.derivative(lambda z: z * z * z, x).df",
    ],
    "sklearn": [
        *PREPROCESSING,
        *MODELS,
        *DECOMPOSITIONS,
        *(f"metrics.{call}" for call in METRICS),
    ],
}
RUN = """
import importlib, json, sys, warnings
import numpy as np, pullback as pb

warnings.simplefilter("ignore")
library, expressions = json.loads(sys.stdin.read())
random = np.random.default_rng(0)
names = dict(
    x=np.array([0.3, 1.2, 2.5, 0.7]), y=np.array([1.0, 0.4, 2.0, 3.0]),
    m=random.standard_normal((30, 4)).cumsum(0) + 9, c=np.arange(30) // 10 % 2,
    d=np.arange(30) % 2, p=np.linspace(0.1, 0.9, 30), t=random.standard_normal(30),
)
modules = {
    name: importlib.import_module(f"{library}.{name}")
    for name in {text.removeprefix("abs(").partition(".")[0] for text in expressions}
}
if library == "sklearn":
    import sklearn.linear_model, sklearn.metrics.pairwise

    sklearn.set_config(array_api_dispatch=True)
    modules["linear_model"] = sklearn.linear_model
else:
    import scipy.cluster.vq


def results(text, make):
    found = eval(text, {**modules, **{name: make(array) for name, array in names.items()}})
    if hasattr(found, "pvalue"):
        found = (found.statistic, found.pvalue)
    return found if isinstance(found, tuple) else (found,)


def difference(text):
    try:
        found, expected = results(text, pb.tensor), results(text, np.copy)
    except Exception as error:
        return repr(error)
    if len(found) != len(expected):
        return f"{len(found)} results, not {len(expected)}"
    for one, other in zip(found, expected):
        if isinstance(one, tuple):
            continue
        other = np.asarray(other)
        if not isinstance(one, pb.Tensor) and (other.ndim or not isinstance(one, float)):
            return f"a {type(one).__name__}"
        one = np.asarray(one)
        if one.dtype != other.dtype or one.shape != other.shape:
            return f"{one.dtype}{one.shape}, not {other.dtype}{other.shape}"
        if not np.allclose(one, other, rtol=1e-6, atol=1e-9, equal_nan=True):
            return f"{one}, not {other}"
    return ""


print(json.dumps({text: difference(text) for text in expressions}))
"""


@pytest.fixture(scope="module")
def differences(tmp_path_factory):
    """By expression, how its result differs from NumPy's; both libraries in one process each."""
    import os
    import subprocess
    import sys

    def run(library):
        done = subprocess.run(
            [sys.executable, "-c", RUN],
            input=json.dumps([library, EXPRESSIONS[library]]),
            env={**os.environ, "SCIPY_ARRAY_API": "1"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    found = {}

    def of(library, expression):
        if library not in found:
            found[library] = run(library)
        return found[library][expression]

    return of


@pytest.mark.parametrize("expression", EXPRESSIONS["scipy"])
def test_scipy_computes_on_tensors(expression, differences):
    pytest.importorskip("scipy", "1.16")
    assert differences("scipy", expression) == ""


@pytest.mark.parametrize("expression", EXPRESSIONS["sklearn"])
def test_sklearn_computes_on_tensors(expression, differences):
    pytest.importorskip("sklearn", "1.8")
    pytest.importorskip("scipy", "1.16")
    import pullback

    needed = DECOMPOSITIONS.get(expression)
    if needed is not None and not hasattr(pullback.linalg, needed):
        pytest.skip(f"pullback.linalg has no {needed}")
    assert differences("sklearn", expression) == ""


def test_gradients_flow_through_scipy(run_python):
    pytest.importorskip("scipy", "1.16")
    code = (
        "import pullback as pb\n"
        "from scipy import special, stats\n"
        "x = pb.tensor([0.5, 1.0, 2.0], dtype=pb.float64, requires_grad=True)\n"
        "special.logsumexp(x).backward()\n"
        "print(pb.allclose(x.grad, pb.softmax(x, 0)))\n"
        "x.grad = None\n"
        "stats.zscore(x)[2].backward()\n"
        "print(abs(float(x.grad.sum())) < 1e-12, float(x.grad.abs().max()) > 0.1)\n"
    )
    assert run_python(code, SCIPY_ARRAY_API="1").stdout.split() == ["True"] * 3


def test_array_api_compat_sees_a_compliant_namespace():
    compat = pytest.importorskip("array_api_compat")
    import pullback
    import pullback.array_api as xp

    x = pullback.ones((2, 3), requires_grad=True)
    assert compat.is_array_api_obj(x)
    assert compat.array_namespace(x, 2 * x, 1.0, None) is xp
    assert compat.device(x) == x.device
    assert compat.size(x) == 6
    moved = compat.to_device(x, "ref")
    assert moved.device.type == "ref"
    assert moved.requires_grad
