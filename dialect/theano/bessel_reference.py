"""References of Bessel functions: series and integrals, with many terms and nodes, in the longest
precision.
"""

import math

import numpy as np

MOST = 1 << 27  # terms of a sum


def _exact_j(order: int, x: float) -> float:
    """The mean of cos(nθ - x sin θ), by the trapezoidal rule."""
    if (count := int(4 * x) + 2 * order + 200) > MOST:
        raise MemoryError(f"the reference of jv is a sum of {count} terms")
    theta = np.arange(count, dtype=np.longdouble) * (2 * np.arccos(np.longdouble(-1)) / count)
    return float(np.cos(order * theta - np.longdouble(x) * np.sin(theta)).sum() / count)


def _exact_wave(v: float, x: float) -> float:
    """Hankel's asymptotic expansion."""
    wide = np.longdouble(x)
    term = np.longdouble(1)
    pi = 4 * np.arctan(np.longdouble(1))
    parts = [term, np.longdouble(0)]
    for n in range(1, 100):
        following = term * (4 * np.longdouble(v) ** 2 - (2 * n - 1) ** 2) / (n * 8 * wide)
        if n > abs(v) and abs(following) >= abs(term):
            break
        term = following
        parts[n % 2] += term * (1 if n % 4 < 2 else -1)
    turn = (np.longdouble(v % 4) / 2 + np.longdouble(0.25)) * pi
    cosine = np.cos(wide) * np.cos(turn) + np.sin(wide) * np.sin(turn)
    sine = np.sin(wide) * np.cos(turn) - np.cos(wide) * np.sin(turn)
    return float((parts[0] * cosine - parts[1] * sine) * np.sqrt(2 / (pi * wide)))


def _exact_integrals(v: float, x: float) -> float:
    """Schläfli's integrals, as the formula has them, with many more nodes and digits."""
    pi = 4 * np.arctan(np.longdouble(1))
    wide = np.longdouble(x)
    s = np.linspace(np.longdouble(-4.2), np.longdouble(4.2), 4001)
    decay = np.exp(-pi * np.sinh(s))
    tau = pi / (1 + decay)
    weight = decay / (1 + decay) ** 2 * np.cosh(s) * pi
    first = (np.cos(v * tau - wide * np.sin(tau)) * weight).sum() * (s[1] - s[0])
    t = np.exp(s - np.exp(-s))
    second = (np.exp(-wide * np.sinh(t) - v * t) * t * (1 + np.exp(-s))).sum() * (s[1] - s[0])
    return float(first - np.sin(pi * np.longdouble(v)) / pi * second)


def exact_of_order(v: float, x: float, sign: int) -> float:
    """Jv where the sign is -1, Iv where it is 1."""
    if math.isinf(v):
        return math.nan if x < 0 or math.isinf(x) else 0.0
    if (whole := v == math.floor(v)) and v < 0:
        return exact_of_order(-v, x, sign) * ((-1) ** int(v) if sign < 0 else 1)
    if x < 0:
        return exact_of_order(v, -x, sign) * (-1) ** int(v) if whole else math.nan
    if x == 0:
        if v == 0:
            return 1.0
        if v > 0:
            return 0.0
        return math.inf
    if math.isinf(x):
        return 0.0 if sign < 0 else math.inf
    if v > x or sign > 0:
        if (size := _exponent(abs(v), x, sign)) < -800 and v > 0:
            return 0.0
        if size > 800 and sign > 0:
            return math.inf
    if sign < 0 and x > 12 and abs(v) <= x * x / 4:
        if x > 1000 and v * v < 8 * x:
            return _exact_wave(v, x)
        return _exact_j(int(v), x) if whole else _exact_integrals(v, x)
    return _exact_series(np.longdouble(v), np.longdouble(x), sign)


def _exponent(v: float, x: float, sign: int) -> float:
    """About the logarithm of what Iv is, or Jv where v > x."""
    if math.isinf(v / x):
        return v * (math.log(x) - math.log(2 * v)) + v
    if sign > 0:
        return math.hypot(v, x) - v * math.asinh(v / x)
    return math.sqrt(v - x) * math.sqrt(v + x) - v * math.acosh(v / x)


def _exact_series(v: np.longdouble, x: np.longdouble, sign: int) -> float:
    """The power series; (x/2)^v / Γ(v+1) from that of v's fraction, one factor for each whole part
    of v.
    """
    half = x / 2
    fraction = v - np.floor(v)
    term = half**fraction / np.longdouble(math.gamma(float(fraction) + 1))
    for n in range(1, int(v - fraction) + 1):
        if (term := term * half / (fraction + n)) == 0:
            return 0.0
    for n in range(int(fraction - v)):
        term = term * (fraction - n) / half
    sum = term
    least = np.finfo(np.longdouble).eps / 16
    for n in range(1, 200_000):
        term = term * sign * half * half / (n * (v + n))
        sum = sum + term
        if np.isinf(sum) or (n > abs(v) and abs(term) <= abs(sum) * least):
            break
    return float(sum)
