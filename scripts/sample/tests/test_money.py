import pytest

from invoicekit.money import allocate, format_amount, percentage


@pytest.mark.parametrize(
    ("cents", "basis_points", "expected"),
    [(10_000, 1900, 1_900), (50, 1900, 10), (250, 700, 18), (-250, 700, -18), (0, 1900, 0)],
)
def test_percentage_rounds_half_away_from_zero(cents, basis_points, expected):
    assert percentage(cents, basis_points) == expected


def test_allocate_loses_no_cent():
    assert allocate(100, [1, 1, 1]) == [34, 33, 33]
    assert allocate(1_001, [500, 300, 200]) == [501, 300, 200]


def test_allocate_gives_left_over_cents_to_the_largest_remainders():
    assert allocate(10, [3, 3, 1]) == [4, 4, 2]


def test_allocate_needs_weights():
    with pytest.raises(ValueError):
        allocate(100, [])


def test_amounts_for_people():
    assert format_amount(123_450) == "1.234,50 EUR"
    assert format_amount(-5) == "-0,05 EUR"
