from datetime import date

import pytest

from invoicekit.rates import GERMANY, UnknownRate


def test_rates_over_the_years():
    assert GERMANY.rate_on("standard", date(2019, 5, 20)) == 1900
    assert GERMANY.rate_on("standard", date(2020, 9, 14)) == 1600
    assert GERMANY.rate_on("reduced", date(2020, 12, 31)) == 500
    assert GERMANY.rate_on("reduced", date(2022, 2, 3)) == 700


def test_a_category_has_no_rate_before_its_first():
    with pytest.raises(UnknownRate, match="solar"):
        GERMANY.rate_on("solar", date(2022, 6, 1))


def test_changes_in_a_period():
    assert GERMANY.changes_between(date(2020, 1, 1), date(2021, 1, 1)) == [date(2020, 7, 1), date(2021, 1, 1)]


def test_categories():
    assert GERMANY.categories() == ["reduced", "solar", "standard"]
