"""Further names of ops: what torch has in more than one namespace, perhaps under another name."""

ELSEWHERE = {
    "functional": {"relu_": "relu_"},
    "special": {
        **{name: name for name in (
            "digamma", "erf", "erfc", "erfinv", "exp2", "expm1", "i0", "i1", "log1p", "logit",
            "logsumexp", "polygamma", "round", "sinc", "xlogy", "zeta")},
        "expit": "sigmoid", "gammaln": "lgamma", "log_softmax": "plain_log_softmax",
        "multigammaln": "mvlgamma", "psi": "digamma", "softmax": "plain_softmax"},
}
