"""Loaded first in every Python that a command of the user's starts, as its `sitecustomize`.

It runs among the user's code, in whatever Python that is, and imports nothing of ours. It offers pytest where
there is none, keeps DevFix's own packages from being imported, and, where the workspace is not mounted at the
original's path (sandbox level 1), turns what leads to the original towards the workspace: path entries that
.pth files added and the mappings of import finders that editable installs set up. What still leads there is
refused, since its result would be false. `plan.json` beside this file says what to do.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

NAME = "sitecustomize"
DEPENDENCIES = (".venv", "venv", "node_modules")
DEPTH = 3
"""How deep in a finder's tables a path is looked for."""


class Redirection:
    """From the original repository to the workspace."""

    def __init__(self, original: str, workspace: str) -> None:
        self.original = original
        self.workspace = os.path.realpath(workspace)

    def leads_to_original(self, path: str) -> bool:
        """Inside the original, and neither in a folder of installed dependencies nor in a workspace kept there."""
        if os.path.realpath(path).startswith(self.workspace + os.sep):
            return False
        first = self._inside(path).split(os.sep)[0]
        return first != os.pardir and first not in DEPENDENCIES

    def turned(self, path: str) -> str:
        if os.path.isabs(path) and self.leads_to_original(path):
            return os.path.normpath(os.path.join(self.workspace, self._inside(path)))
        return path

    def _inside(self, path: str) -> str:
        return os.path.relpath(os.path.realpath(path), self.original)

    def turn(self, value: Any, depth: int = DEPTH) -> Any:
        """The value with every path in it turned; lists and dicts are changed in place, others replaced."""
        if isinstance(value, str):
            return self.turned(value)
        if isinstance(value, os.PathLike):
            path, turned = os.fspath(value), self.turned(str(value))
            return value if path == turned else type(value)(turned)  # type: ignore[call-arg]
        if depth and isinstance(value, dict):
            value.update({key: self.turn(each, depth - 1) for key, each in value.items()})
        elif depth and isinstance(value, list):
            value[:] = [self.turn(each, depth - 1) for each in value]
        elif depth and type(value) in (tuple, set):
            return type(value)(self.turn(each, depth - 1) for each in value)
        return value

    def turn_attributes(self, thing: Any) -> None:
        for name, value in list(getattr(thing, "__dict__", {}).items()):
            if not name.startswith("__"):
                turned = self.turn(value)
                if turned is not value:
                    setattr(thing, name, turned)

    def turn_imports(self) -> None:
        sys.path[:] = [self.turned(entry) for entry in sys.path]
        for finder in list(sys.meta_path):
            kind: Any = finder if isinstance(finder, type) else type(finder)
            if not kind.__module__.startswith(("_frozen_importlib", "importlib.", "zipimport")):
                for thing in (finder, kind, sys.modules.get(kind.__module__)):
                    self.turn_attributes(thing)
        sys.path_importer_cache.clear()


class Gate:
    """Asks the other finders and refuses what must not be imported."""

    def __init__(self, redirection: Redirection | None, own: str, names: list[str]) -> None:
        self.redirection = redirection
        self.own = own
        self.names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if self.redirection is None and name not in self.names:
            return None
        hidden = False
        for finder in [each for each in sys.meta_path if each is not self and hasattr(each, "find_spec")]:
            spec = finder.find_spec(name, path, target)
            if spec is not None and name in self.names and self.is_own(spec):
                hidden = True
                spec = self.past_own(name) if finder is PathFinder else None
            if spec is not None:
                self.refuse_original(name, spec)
                return spec
        if hidden:  # to answer None would let the other finders find it
            raise ModuleNotFoundError("No module named " + repr(name), name=name)
        return None

    def refuse_original(self, name: str, spec: ModuleSpec) -> None:
        for place in places(spec) if self.redirection else ():
            if self.redirection is not None and self.redirection.leads_to_original(place):
                sentence = name + " leads to the original repository, not to the workspace: " + place
                raise ImportError(sentence, name=name, path=place)

    def is_own(self, spec: ModuleSpec) -> bool:
        return any(os.path.dirname(os.path.realpath(place)) == self.own for place in folders(spec))

    def past_own(self, name: str) -> ModuleSpec | None:
        rest = [entry for entry in sys.path if os.path.realpath(entry or os.curdir) != self.own]
        return PathFinder.find_spec(name, rest)


def places(spec: ModuleSpec) -> list[str]:
    found = [spec.origin] if spec.has_location and spec.origin else []
    return found + folders(spec)


def folders(spec: ModuleSpec) -> list[str]:
    return [each for each in spec.submodule_search_locations or () if os.path.isabs(each)]


def settle(here: str) -> None:
    with open(os.path.join(here, "plan.json")) as file:
        plan = json.load(file)
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry or os.curdir) != here]
    original, workspace = os.environ.get("DEVFIX_ORIGINAL"), os.environ.get("DEVFIX_WORKSPACE")
    redirection = None
    if original and workspace and original != workspace:
        redirection = Redirection(original, workspace)
        redirection.turn_imports()
    if redirection or plan["own"]:
        sys.meta_path.insert(0, Gate(redirection, plan["own"], plan["names"]))
    if plan["offer"]:
        sys.path.append(plan["offer"])


def make_way() -> None:
    """Load the sitecustomize that would have been loaded without us."""
    this = sys.modules.pop(NAME)
    try:
        __import__(NAME)
    except ModuleNotFoundError as error:
        if error.name != NAME:
            raise
    sys.modules.setdefault(NAME, this)


if __name__ == NAME:
    settle(os.path.dirname(os.path.realpath(__file__)))
    make_way()
