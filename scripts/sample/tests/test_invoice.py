from datetime import date

import pytest

from invoicekit.invoice import Invoice, Line
from invoicekit.rates import GERMANY
from invoicekit.terms import PaymentTerms


def invoice(issued, lines, **more):
    return Invoice("2020-0117", "Kessler GmbH", issued, lines, **more)


def test_totals_of_mixed_rates():
    totals = invoice(
        date(2019, 11, 8),
        [Line("Consulting", 3, 12_000), Line("Handbook", 2, 2_495, "reduced")],
    ).totals(GERMANY)
    assert totals.by_rate == {700: (4_990, 349), 1900: (36_000, 6_840)}
    assert (totals.net, totals.tax, totals.gross) == (40_990, 7_189, 48_179)


def test_tax_is_rounded_once_for_each_rate():
    totals = invoice(date(2024, 2, 1), [Line("Sticker", 1, 33) for _ in range(10)]).totals(GERMANY)
    assert totals.tax == 63


def test_a_discount_is_shared_out_over_the_rates():
    totals = invoice(
        date(2024, 2, 1),
        [Line("Chair", 1, 10_000), Line("Catalogue", 1, 5_000, "reduced")],
        discount=1_000,
    ).totals(GERMANY)
    assert totals.by_rate == {700: (4_667, 327), 1900: (9_333, 1_773)}


def test_a_discount_larger_than_the_invoice_is_refused():
    with pytest.raises(ValueError):
        invoice(date(2024, 2, 1), [Line("Pen", 1, 100)], discount=101).totals(GERMANY)


def test_the_day_of_delivery_decides_the_rate():
    late = invoice(date(2020, 7, 20), [Line("Repair", 1, 20_000)], delivered=date(2020, 6, 24))
    assert late.totals(GERMANY).tax == 3_800


def test_work_delivered_on_new_years_day():
    job = invoice(date(2021, 1, 8), [Line("Emergency call", 1, 30_000)], delivered=date(2021, 1, 1))
    assert job.totals(GERMANY).gross == 35_700


def test_solar_panels_for_the_first_customer_of_the_year():
    panels = invoice(date(2023, 1, 1), [Line("Panel", 12, 21_000, "solar"), Line("Van", 1, 9_000)])
    assert panels.totals(GERMANY).by_rate == {0: (252_000, 0), 1900: (9_000, 1_710)}


def test_amount_due_with_cash_discount():
    quick = PaymentTerms(net_days=30, discount_days=10, discount_basis_points=200)
    job = invoice(date(2024, 3, 1), [Line("Audit", 1, 100_000)], terms=quick)
    assert job.amount_due(GERMANY, date(2024, 3, 8)) == 116_620
    assert job.amount_due(GERMANY, date(2024, 3, 28)) == 119_000


def test_a_credit_note_takes_back_the_same_tax():
    original = invoice(date(2020, 8, 3), [Line("Fence", 4, 8_125)])
    note = original.cancelled_by("2021-0003", date(2021, 2, 10))
    assert note.totals(GERMANY).gross == -original.totals(GERMANY).gross
