"""What `main.rs` expects: two steps of plain gradient descent in float64, with a batch norm that three uses share.

    python3 golden.py > expected.txt

The network is `[first, eval(norm), Tanh, norm, Tanh, eval(norm)]`; statistics move in the second use, and the third one reads them.
"""

import numpy as np

BATCH, WIDTH, EPS, MOMENTUM, LR = 6, 4, 1e-5, 0.1, 0.5


def spread(count, salt):
    """Numbers around 0 that look random, as f32 has them."""
    index = np.arange(count)
    return (((index * 7919 + salt * 104_729) % 1009) / 1009.0 - 0.5).astype(np.float32).astype(np.float64)


def matrix(salt, rows=BATCH):
    return spread(rows * WIDTH, salt).reshape(rows, WIDTH)


def norm(x, weight, bias, mean, var):
    rstd = 1 / np.sqrt(var + EPS)
    n = (x - mean) * rstd
    return n * weight + bias, (n, rstd)


def back_eval(dy, weight, kept):
    n, rstd = kept
    return dy * weight * rstd, (dy * n).sum(0), dy.sum(0)


def back_train(dy, weight, kept):
    n, rstd = kept
    dx = weight * rstd * (dy - dy.mean(0) - n * (dy * n).mean(0))
    return dx, (dy * n).sum(0), dy.sum(0)


state = {
    "first.weight": matrix(1, WIDTH),
    "first.bias": spread(WIDTH, 2),
    "norm.weight": 1 + spread(WIDTH, 3),
    "norm.bias": spread(WIDTH, 4),
    "norm.running_mean": spread(WIDTH, 5),
    "norm.running_var": 1 + spread(WIDTH, 6),
}


def step(x, t):
    s = state
    w, b = s["norm.weight"], s["norm.bias"]
    h = x @ s["first.weight"].T + s["first.bias"]
    a, kept_a = norm(h, w, b, s["norm.running_mean"], s["norm.running_var"])
    ta = np.tanh(a)
    mean, var = ta.mean(0), ta.var(0)
    c, kept_c = norm(ta, w, b, mean, var)
    s["norm.running_mean"] = (1 - MOMENTUM) * s["norm.running_mean"] + MOMENTUM * mean
    s["norm.running_var"] = (1 - MOMENTUM) * s["norm.running_var"] + MOMENTUM * var * BATCH / (BATCH - 1)
    tc = np.tanh(c)
    y, kept_y = norm(tc, w, b, s["norm.running_mean"], s["norm.running_var"])
    loss = ((y - t) ** 2).mean()
    d, dw, db = back_eval(2 * (y - t) / y.size, w, kept_y)
    d, more_w, more_b = back_train(d * (1 - tc**2), w, kept_c)
    dw, db = dw + more_w, db + more_b
    d, more_w, more_b = back_eval(d * (1 - ta**2), w, kept_a)
    dw, db = dw + more_w, db + more_b
    for name, gradient in {
        "norm.weight": dw,
        "norm.bias": db,
        "first.weight": d.T @ x,
        "first.bias": d.sum(0),
    }.items():
        s[name] = s[name] - LR * gradient
    return loss


losses = [step(matrix(10), matrix(11)) for _ in range(2)]
for name, values in {"losses": np.array(losses), **state}.items():
    print(name, *(f"{value:.9g}" for value in values.ravel()))
