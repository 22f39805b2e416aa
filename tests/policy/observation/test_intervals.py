"""The exact intervals: against their definition in exact fractions, and against what scipy 1.17 computes."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.observation.comparison import FEWEST_CASES, FEWEST_DAYS, binomial_interval, poisson_interval, rate_of, share_of

TAIL = 0.025

OF_SCIPY = {
    0: (0.0, 3.6888794541139354),
    1: (0.025317807984289876, 5.571643390938898),
    2: (0.24220927854396496, 7.22468766772396),
    5: (1.6234863901184207, 11.66833207932267),
    10: (4.7953886961324335, 18.39035604201778),
    25: (16.178681847829328, 36.904931697530365),
    100: (81.36399125092314, 121.62679379242638),
    1000: (938.9730184076952, 1063.952136016302),
}
"""`chi2.ppf(0.025, 2 * n) / 2` and `chi2.ppf(0.975, 2 * n + 2) / 2`."""

SHARES_OF_SCIPY = {
    (0, 1): (0.0, 0.975),
    (1, 1): (0.025, 1.0),
    (0, 20): (0.0, 0.1684334709830853),
    (20, 20): (0.8315665290169146, 1.0),
    (3, 10): (0.06673951117773447, 0.6524528500599973),
    (30, 1000): (0.020330485683109627, 0.042551402470029046),
    (999, 1000): (0.9944410757201734, 0.9999746825125088),
    (500, 1000): (0.46854917297179194, 0.531450827028208),
}
"""`beta.ppf(0.025, k, n - k + 1)` and `beta.ppf(0.975, k + 1, n - k)`."""


@pytest.mark.parametrize("cases", OF_SCIPY)
def test_a_rate_has_the_interval_of_scipy(cases: int) -> None:
    assert poisson_interval(cases) == pytest.approx(OF_SCIPY[cases], rel=1e-9)


@pytest.mark.parametrize(("cases", "of"), SHARES_OF_SCIPY)
def test_a_share_has_the_interval_of_scipy(cases: int, of: int) -> None:
    assert binomial_interval(cases, of) == pytest.approx(SHARES_OF_SCIPY[cases, of], rel=1e-8)


@given(of=st.integers(1, 60), part=st.floats(0, 1))
def test_each_end_of_a_share_leaves_a_fortieth_beyond_it(of: int, part: float) -> None:
    cases = round(of * part)
    low, high = binomial_interval(cases, of)

    def exactly(number: int, share: float) -> Fraction:
        exact = Fraction(share)
        return math.comb(of, number) * exact**number * (1 - exact) ** (of - number)

    assert 0 <= low <= cases / of <= high <= 1
    if cases:
        assert float(sum(exactly(each, low) for each in range(cases, of + 1))) == pytest.approx(TAIL, rel=1e-6)
    if cases < of:
        assert float(sum(exactly(each, high) for each in range(cases + 1))) == pytest.approx(TAIL, rel=1e-6)


@given(st.integers(0, 60))
def test_each_end_of_a_rate_leaves_a_fortieth_beyond_it(cases: int) -> None:
    low, high = poisson_interval(cases)

    def at_most(number: int, mean: float) -> float:
        term, total = Fraction(1), Fraction(0)
        for each in range(number + 1):
            total, term = total + term, term * Fraction(mean) / (each + 1)
        return float(total) * math.exp(-mean)

    assert low <= cases <= high
    if cases:
        assert 1 - at_most(cases - 1, low) == pytest.approx(TAIL, abs=1e-9)
    assert at_most(cases, high) == pytest.approx(TAIL, abs=1e-9)


def test_many_cases_need_no_patience() -> None:
    low, high = poisson_interval(5_000)
    assert (low, high) == pytest.approx((5_000 - 1.96 * math.sqrt(5_000), 5_000 + 1.96 * math.sqrt(5_000)), rel=1e-3)


def test_too_few_cases_say_too_little_and_none_say_nothing() -> None:
    rate, share = rate_of(3, 1500), share_of(3, FEWEST_CASES)
    assert rate is not None
    assert share is not None
    assert (rate.value, rate.enough) == (2.0, True)
    assert (share.value, share.enough) == (0.3, True)
    few, little = share_of(3, FEWEST_CASES - 1), rate_of(0, FEWEST_DAYS - 1)
    assert few is not None
    assert not few.enough
    assert little is not None
    assert not little.enough
    assert share_of(0, 0) is None
    assert rate_of(0, 0) is None
