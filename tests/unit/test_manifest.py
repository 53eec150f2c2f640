"""The listings of a snapshot: canonical, exact, and nothing else than listings."""

from __future__ import annotations

import json

import pytest

from state.artifacts import digest_of
from state.errors import ArtifactMissing
from state.manifest import Entry, differences, listings_of, parse_listing

FILE = Entry("file", 0o644, 3, digest_of(b"abc"))
FOLDER = Entry("folder", 0o755)


def test_the_order_of_entries_does_not_matter() -> None:
    entries = {"a": FOLDER, "a/x": FILE, "a/y": FILE, "b": Entry("link", target="a")}
    assert listings_of(entries) == listings_of(dict(reversed(entries.items())))


def test_a_change_makes_new_listings_on_its_way_to_the_root_only() -> None:
    before = listings_of({"a": FOLDER, "a/x": FILE, "b": FOLDER, "b/y": FILE}).contents
    after = listings_of({"a": FOLDER, "a/x": FILE, "b": FOLDER, "b/y": FILE._replace(mode=0o755)}).contents
    assert len(after.keys() - before.keys()) == 2


def test_names_that_are_not_utf8_are_told_from_those_that_are() -> None:
    undecodable, decodable = "caf\udce9", "café"
    listing = listings_of({undecodable: FILE, decodable: FOLDER})
    assert b"caf\\udce9" in listing.contents[listing.root]
    names = [name for name, _, _ in parse_listing(listing.contents[listing.root], listing.root)]
    assert sorted(names) == sorted([undecodable, decodable])


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "/etc", "a\0"])
def test_a_listing_that_would_lead_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(ArtifactMissing, match="is not a folder's listing"):
        parse_listing(json.dumps({name: ["link", "x"]}).encode(), "digest")


def test_bytes_that_are_no_listing_are_refused() -> None:
    for data in (b"\xff", b"{", b"[]", b"3"):
        with pytest.raises(ArtifactMissing):
            parse_listing(data, "digest")


def test_folders_count_as_changes_only_by_themselves() -> None:
    old = {"kept": FOLDER, "kept/x": FILE, "emptied": FOLDER, "emptied/x": FILE}
    new = {
        "kept": FOLDER._replace(mode=0o700),
        "kept/x": FILE,
        "emptied": FOLDER,
        "new": FOLDER,
        "made": FOLDER,
        "made/x": FILE,
    }
    assert [(c.path, c.kind) for c in differences(old, new)] == [
        ("emptied/x", "removed"),
        ("kept", "modified"),
        ("made/x", "added"),
        ("new", "added"),
    ]
