"""Invoices: lines, discounts, and totals for each tax rate."""

from dataclasses import dataclass, field
from datetime import date
from typing import Optional

from invoicekit.money import allocate, percentage
from invoicekit.terms import PaymentTerms


@dataclass(frozen=True)
class Line:
    """Something sold: how many, at what price each (in cents), taxed as what."""

    text: str
    quantity: int
    unit_price: int
    category: str = "standard"

    @property
    def amount(self):
        return self.quantity * self.unit_price


@dataclass(frozen=True)
class Totals:
    net: int
    tax: int
    by_rate: dict

    @property
    def gross(self):
        return self.net + self.tax


@dataclass
class Invoice:
    number: str
    customer: str
    issued: date
    lines: list
    terms: PaymentTerms = field(default_factory=PaymentTerms)
    discount: int = 0
    """In cents, on the whole invoice; shared out over the lines."""
    delivered: Optional[date] = None
    """The day of delivery decides the tax rate; without one, the day of issue does."""

    @property
    def tax_day(self):
        return self.delivered or self.issued

    def net_amounts(self):
        """Each line's amount after its share of the discount."""
        amounts = [line.amount for line in self.lines]
        if not self.discount:
            return amounts
        if self.discount > sum(amounts):
            raise ValueError("the discount exceeds the invoice")
        shares = allocate(self.discount, amounts)
        return [amount - share for amount, share in zip(amounts, shares)]

    def totals(self, rates):
        """Net, tax and gross; tax is rounded once for each rate, not for each line."""
        net_by_rate = {}
        for line, amount in zip(self.lines, self.net_amounts()):
            rate = rates.rate_on(line.category, self.tax_day)
            net_by_rate[rate] = net_by_rate.get(rate, 0) + amount
        by_rate = {rate: (net, percentage(net, rate)) for rate, net in sorted(net_by_rate.items())}
        return Totals(
            net=sum(net for net, _ in by_rate.values()),
            tax=sum(tax for _, tax in by_rate.values()),
            by_rate=by_rate,
        )

    def due_on(self, holidays=()):
        return self.terms.due_on(self.issued, holidays)

    def amount_due(self, rates, paid):
        """What must be paid on that day, the cash discount taken off."""
        gross = self.totals(rates).gross
        return gross - self.terms.cash_discount(gross, self.issued, paid)

    def cancelled_by(self, number, issued):
        """The credit note that takes this invoice back, taxed as the invoice was."""
        lines = [Line(line.text, -line.quantity, line.unit_price, line.category) for line in self.lines]
        return Invoice(number, self.customer, issued, lines, self.terms, delivered=self.tax_day)
