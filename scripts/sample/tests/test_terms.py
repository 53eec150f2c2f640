from datetime import date

from invoicekit.terms import PaymentTerms


def test_due_date_moves_past_the_weekend():
    assert PaymentTerms(net_days=14).due_on(date(2024, 3, 1)) == date(2024, 3, 15)
    assert PaymentTerms(net_days=15).due_on(date(2024, 3, 1)) == date(2024, 3, 18)


def test_due_date_moves_past_holidays():
    easter = {date(2024, 3, 29), date(2024, 4, 1)}
    assert PaymentTerms(net_days=28).due_on(date(2024, 3, 1), easter) == date(2024, 4, 2)


def test_cash_discount_holds_through_its_last_day():
    terms = PaymentTerms(net_days=30, discount_days=10, discount_basis_points=200)
    assert terms.cash_discount(11_900, date(2024, 3, 1), date(2024, 3, 11)) == 238
    assert terms.cash_discount(11_900, date(2024, 3, 1), date(2024, 3, 12)) == 0
