"""References of the incomplete gamma functions: a series and a fraction of as many terms as they
need.
"""

import math

import numpy as np

# of Temme's coefficients, in powers of η, those of a^0, a^-1 and a^-2
TEMME = (
    (
        -1 / 3,
        1 / 12,
        -2 / 135,
        1 / 864,
        1 / 2835,
        -139 / 777600,
        1 / 25515,
        -571 / 261273600,
        -281 / 151559100,
    ),
    (-1 / 540, -1 / 288, 1 / 378, -77 / 77760, 7 / 34020),
    (25 / 6048, -139 / 51840),
)


def exact_incomplete(a: float, x: float) -> tuple[float, float]:
    """P and Q: by the power series below a + 1, else by the continued fraction; of very high
    orders, by the normal distribution.
    """
    if not (a >= 0 and x >= 0) or a == x == 0 or a == x == math.inf:
        return math.nan, math.nan
    if x == 0 or math.isinf(a):
        return 0.0, 1.0
    if a == 0 or math.isinf(x):
        return 1.0, 0.0
    if a > 1 << 20:
        return _exact_of_high(a, x)
    front = _exact_density(a, x)
    if a < 1 and x < 1.5:
        power = a * math.log(x) - _lgamma_of_1_and(a)
        wide = np.longdouble(a)
        terms = (np.longdouble(-x) ** n / ((wide + n) * math.factorial(n)) for n in range(1, 60))
        above = float(
            -np.expm1(np.longdouble(power)) - np.exp(np.longdouble(power)) * wide * sum(terms)
        )
        return (1 - above, above) if above < 0.5 else (front * _exact_series(a, x), above)
    if x < a + 1:
        below = front * _exact_series(a, x)
        return below, 1 - below
    b = np.longdouble(x) + 1 - a
    c_ = np.longdouble(1e300)
    d = 1 / b
    h = d
    for i in range(1, 100_000):
        an = -i * (i - np.longdouble(a))
        b += 2
        d = 1 / ((an * d + b) or 1e-300)
        c_ = (b + an / c_) or np.longdouble(1e-300)
        h *= d * c_
        if abs(d * c_ - 1) < 1e-18:
            break
    above = float(front * h * a)
    return 1 - above, above


def _exact_series(a: float, x: float) -> float:
    term = whole = np.longdouble(1)
    n = np.longdouble(a)
    while term > whole * 1e-19:
        n += 1
        term *= x / n
        whole += term
    return float(whole)


def _lgamma_of_1_and(a: float) -> float:
    """log Γ(1 + a) for 0 < a < 1; its Taylor series begins where 1 + a is hardly more than 1."""
    return math.lgamma(1 + a) if a > 1e-7 else a * (math.pi**2 / 12 * a - 0.57721566490153286)


def _exact_density(a: float, x: float) -> float:
    """x^a exp(-x) / Γ(a + 1)"""
    if a < 100:
        return math.exp(a * math.log(x) - x - math.lgamma(a + 1))
    wide = np.longdouble(a)
    m = (np.longdouble(x) - a) / np.longdouble(a)
    correction = 1 / (12 * wide) - 1 / (360 * wide**3) + 1 / (1260 * wide**5)
    return float(
        np.exp(-wide * (m - np.log1p(m)) - correction) / np.sqrt(2 * np.longdouble(math.pi) * wide)
    )


def _exact_of_high(a: float, x: float) -> tuple[float, float]:
    """Temme's expansion, where it has all digits after one term."""
    m = (np.longdouble(x) - a) / np.longdouble(a)
    half = sum((-m) ** n / n for n in range(2, 20)) if abs(m) < 0.05 else m - np.log1p(m)
    eta = np.copysign(np.sqrt(2 * half), m)
    z = float(abs(eta) * np.sqrt(np.longdouble(a) / 2))
    tail = math.erfc(z) / 2
    if z > 30:
        return (0.0, 1.0) if m < 0 else (1.0, 0.0)
    rest = float(sum(c * eta**n for n, c in enumerate(TEMME[0])) + TEMME[1][0] / a)
    rest *= math.exp(-z * z) / math.sqrt(2 * math.pi * a)
    return (tail - rest, 1 - tail + rest) if m < 0 else (1 - tail - rest, tail + rest)
