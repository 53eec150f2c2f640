from datetime import date

from invoicekit.invoice import Invoice, Line
from invoicekit.rates import GERMANY
from invoicekit.statement import ageing, bucket, reminder_fee, tax_of_period
from invoicekit.terms import PaymentTerms


def invoice(day, cents, net_days=14):
    return Invoice("N", "Kessler GmbH", day, [Line("Work", 1, cents)], PaymentTerms(net_days))


def test_columns_of_the_ageing_list():
    assert [bucket(days) for days in (-3, 0, 1, 30, 31, 90, 91)] == [
        "current", "current", "1-30", "1-30", "31-60", "61-90", "over 90",
    ]


def test_ageing():
    invoices = [invoice(date(2024, 1, 2), 10_000), invoice(date(2024, 3, 1), 5_000)]
    assert ageing(invoices, GERMANY, date(2024, 3, 4)) == {"31-60": 11_900, "current": 5_950}


def test_reminders_cost_after_the_first():
    assert [reminder_fee(20, sent) for sent in (0, 1, 2, 9)] == [0, 250, 500, 1_000]
    assert reminder_fee(7, 3) == 0


def test_tax_of_the_third_quarter():
    invoices = [
        invoice(date(2020, 6, 30), 40_000),
        invoice(date(2020, 7, 1), 25_000),
        invoice(date(2020, 9, 30), 10_000),
        invoice(date(2020, 10, 1), 99_000),
    ]
    assert tax_of_period(invoices, GERMANY, date(2020, 7, 1), date(2020, 9, 30)) == {1600: 5_600}
