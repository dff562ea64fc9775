"""Where the candidates of a fill belong in the present text."""

from collections.abc import Sequence

import attrs
from attrs import frozen

from dice_lsp.jobs import Fill
from dice_lsp.records import Document
from dice_lsp.server.session import DiceServer
from dice_lsp.source.positions import LineIndex
from dice_lsp.source.selection import relocate


@frozen
class Place:
    """`start:end` of the present text, which a candidate would replace."""

    start: int
    end: int
    taken: bool
    """A candidate of this fill stands there already, so another one would replace that."""


def place_of(server: DiceServer, fill: Fill, document: Document) -> Place | None:
    """The place of a fill's candidates, or None when the text that they were made for is no longer there.

    That text is the region's own, or the candidate that the user took. Anything else was typed by the user since, and
    is not ours to replace.
    """
    # The taken text first: where the region was empty, its own place would still be found, in front of that text.
    for region, taken in ((server.taken.get(fill.number), True), (fill.region, False)):
        if region is None:
            continue
        found = relocate(region, document.text)
        if found is not None:
            return Place(*found, taken)
    return None


def on_offer(server: DiceServer, document: Document) -> list[tuple[Fill, Place]]:
    """The fills of a document that have a place in its present text, newest first."""
    return placed(server, document, server.results.fills(document.uri))


def placed(server: DiceServer, document: Document, fills: Sequence[Fill]) -> list[tuple[Fill, Place]]:
    """Those of `fills` that have a place in this text. For a text that was not read yet, call it beside the loop."""
    places = ((fill, place_of(server, fill, document)) for fill in fills)
    return [(fill, place) for fill, place in places if place is not None]


async def offers(server: DiceServer, document: Document) -> tuple[list[tuple[Fill, Place]], LineIndex]:
    """The fills on offer in a text and its lines; beside the loop if the text has not been read yet."""
    snapshot = server.documents.last(document.uri)
    if snapshot is not None and snapshot.document is document:
        return on_offer(server, document), snapshot.index
    known = server.results.fills(document.uri)
    offers = await server.documents.in_thread(placed, server, document, known)
    return offers, await server.documents.in_thread(LineIndex, document.shown)


def take(server: DiceServer, fill: Fill, document: Document, start: int, end: int) -> None:
    """Note that a candidate of this fill stands at `start:end` of the document."""
    server.taken[fill.number] = attrs.evolve(fill.region, document=document, start=start, end=end)


def drop_older(server: DiceServer, number: int) -> None:
    """Forget the older fills of the same place: the newest candidates are the ones that were asked for."""
    newest = server.results.fill(number)
    snapshot = None if newest is None else server.documents.last(newest.uri)
    if snapshot is None:
        return
    offers = on_offer(server, snapshot.document)
    mine = next((place for fill, place in offers if fill.number == number), None)
    for fill, place in offers:
        if mine == place and fill.number < number and fill.number not in server.filling:
            drop(server, fill.number)


def drop(server: DiceServer, number: int) -> bool:
    """Forget a fill's candidates."""
    server.taken.pop(number, None)
    server.ghosts.pop(number, None)
    return server.results.drop_fill(number)
