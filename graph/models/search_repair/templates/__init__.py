"""The ways in which code is wrong, most of them seen in other people's defects; none knows a program."""

from __future__ import annotations

from graph.models.search_repair.templates import calls, conditions, forms, missing, operators, places, sequences, values
from graph.models.search_repair.templates.base import Failure, Site, Template, Variant

TEMPLATES: tuple[Template, ...] = (
    *operators.TEMPLATES,
    *values.TEMPLATES,
    *calls.TEMPLATES,
    *sequences.TEMPLATES,
    *conditions.TEMPLATES,
    *forms.TEMPLATES,
    *missing.TEMPLATES,
    *places.TEMPLATES,
)

__all__ = ["TEMPLATES", "Failure", "Site", "Template", "Variant"]
