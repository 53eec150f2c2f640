"""What a customer owes, how long overdue, and the tax of a period."""

from collections import defaultdict

BUCKETS = ((0, "current"), (30, "1-30"), (60, "31-60"), (90, "61-90"))


def bucket(days_overdue):
    """The column of an ageing list."""
    for limit, name in BUCKETS:
        if days_overdue <= limit:
            return name
    return "over 90"


def ageing(invoices, rates, today):
    """Open amounts by how long they are overdue."""
    columns = defaultdict(int)
    for invoice in invoices:
        overdue = (today - invoice.due_on()).days
        columns[bucket(overdue)] += invoice.totals(rates).gross
    return dict(columns)


def reminder_fee(days_overdue, reminders_sent):
    """The first reminder is free, later ones cost, once a grace period is over."""
    if days_overdue <= 7 or reminders_sent == 0:
        return 0
    return min(250 * reminders_sent, 1_000)


def tax_of_period(invoices, rates, start, end):
    """Tax for each rate of all that was delivered in a period, both ends included."""
    tax = defaultdict(int)
    for invoice in invoices:
        if start <= invoice.tax_day <= end:
            for rate, (_, amount) in invoice.totals(rates).by_rate.items():
                tax[rate] += amount
    return dict(tax)
