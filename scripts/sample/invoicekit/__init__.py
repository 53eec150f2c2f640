"""Invoices, value added tax, payment terms and customer statements."""

__version__ = "2.3.0"
