"""Arithmetic on whole cents."""


def percentage(cents, basis_points):
    """The share of an amount, rounded half away from zero as tax offices expect."""
    product = cents * basis_points
    if product < 0:
        return -((-product + 5_000) // 10_000)
    return (product + 5_000) // 10_000


def allocate(cents, weights):
    """Split an amount in proportion to the weights, without losing a cent.

    Cents that are left over go to the largest remainders, earlier shares first.
    """
    total = sum(weights)
    if total <= 0:
        raise ValueError("weights must add up to more than zero")
    shares = [cents * weight // total for weight in weights]
    left = cents - sum(shares)
    by_remainder = sorted(range(len(weights)), key=lambda i: -(cents * weights[i] % total))
    for index in by_remainder[:left]:
        shares[index] += 1
    return shares


def format_amount(cents, currency="EUR"):
    """An amount for people: 1.234,50 EUR."""
    sign = "-" if cents < 0 else ""
    whole, rest = divmod(abs(cents), 100)
    grouped = f"{whole:,}".replace(",", ".")
    return f"{sign}{grouped},{rest:02d} {currency}"
