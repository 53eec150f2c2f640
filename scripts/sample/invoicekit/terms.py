"""When an invoice must be paid, and what paying early is worth."""

from dataclasses import dataclass
from datetime import timedelta

from invoicekit.money import percentage

SATURDAY = 5


def next_working_day(day, holidays=()):
    """The day itself, or the first working day after it."""
    while day.weekday() >= SATURDAY or day in holidays:
        day += timedelta(days=1)
    return day


@dataclass(frozen=True)
class PaymentTerms:
    """Net days, and optionally a cash discount for those who pay within fewer."""

    net_days: int = 30
    discount_days: int = 0
    discount_basis_points: int = 0

    def due_on(self, issued, holidays=()):
        """The last day to pay; it never falls on a weekend or a holiday."""
        return next_working_day(issued + timedelta(days=self.net_days), holidays)

    def cash_discount(self, gross, issued, paid):
        """What may be kept back when the invoice is paid on that day."""
        if not self.discount_days:
            return 0
        if paid > issued + timedelta(days=self.discount_days):
            return 0
        return percentage(gross, self.discount_basis_points)


IMMEDIATELY = PaymentTerms(net_days=0)
