"""search-repair, the default model where no key is set: honest search, called what it is."""

from graph.models.search_repair.model import SearchRepairModel

__all__ = ["SearchRepairModel"]
