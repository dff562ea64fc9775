"""The whole loop with editors that have no plug-in for us: code actions, hints, lenses, hover and diagnostics only."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.plain import MANNERS, Manners, PlainClient, recorded
from tests.stdio.raw import NO_MODEL, ROOT

SAXPY = (ROOT / "tests/data/saxpy.cu").read_text()
BODY = "int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n)\n        z[i] = a * x[i] + y[i];"
# What stands before the selection on its own line has another length in each encoding.
TEXT = SAXPY.replace("    int i = blockIdx", "    /* 归约 😀 */ int i = blockIdx")
NAME = "saxpy(int n, float a, const float* x, const float* y, float* z) {\n    /*"
FILLS = ["DICE: fill selection", "DICE: fill kernel body"]
QUIET = {"checkOnOpen": False, "checkOnSave": False, "candidates": 2}
NO_FILL = {**QUIET, **NO_MODEL}
EDITS = {"workspace": {"applyEdit": True, "workspaceEdit": {"documentChanges": True}}}
LITERALS = {"codeActionLiteralSupport": {"codeActionKind": {"valueSet": ["", "quickfix", "refactor"]}}}

Starter = Callable[..., Awaitable[PlainClient]]


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Starter]:
    """Starts a client with the document open; it is closed at the end, whatever happened."""
    clients: list[PlainClient] = []

    async def start(
        capabilities: dict[str, Any],
        manners: Manners = Manners(),
        language: str = "cuda",
        text: str = TEXT,
        **more: Any,
    ) -> PlainClient:
        client = await PlainClient.start_as(capabilities, manners, **more)
        clients.append(client)
        file = tmp_path / "saxpy.cu"
        file.write_text(text)
        client.open(file.as_uri(), text, language=language)
        # An editor's user looks at the file before opening the menu.
        await client.until_hover(NAME, "saxpy")
        return client

    yield start
    for client in clients:
        await client.close()


def with_literals(**more: Any) -> dict[str, Any]:
    return {"textDocument": {"codeAction": LITERALS, **more}, **EDITS}


# The loop, as each editor goes through it


@pytest.mark.slow
@pytest.mark.parametrize("name", MANNERS)
async def test_fill_choose_apply_undo_with_what_the_editor_says_of_itself(started: Starter, name: str) -> None:
    editor = recorded(name)
    capabilities = editor["capabilities"]
    client = await started(capabilities, MANNERS[name], editor["languageId"], settings={"dice": {"candidates": 2}})
    await client.until_hover(NAME, "verified in")

    actions = await client.actions(BODY)
    assert list(actions)[:2] == FILLS
    await client.choose(actions["DICE: fill selection"])
    candidates = await client.until_offered(BODY)
    assert candidates and all("verified" in title for title in candidates)
    (on_offer,) = await client.ask("dice/candidates", {"uri": client.uri})
    assert on_offer["text"] == BODY and 1 <= len(on_offer["candidates"]) <= 2
    if client.offered.get("inlayHintProvider"):
        assert (await client.hints())[10].startswith("A ")
    if client.offered.get("codeLensProvider"):
        assert (await client.lenses())[:2] == ["Fill body", "Check"]
    assert "| A " in await client.hover("int i = blockIdx")

    wanted = TEXT.replace(BODY, on_offer["candidates"][0]["newText"])
    await client.choose(next(iter(candidates.values())))
    assert client.text == wanted
    await client.until_hover(NAME, "verified in")
    assert "| A " not in await client.hover("blockIdx.x * blockDim.x"), "what was taken is no longer on offer"
    client.undo()
    assert client.text == TEXT
    assert await client.until_offered(BODY), "the candidates belong to the old text again"
    # Kate takes edits and does not say so.
    assert client.undeclared == ([] if capabilities["workspace"].get("applyEdit") else ["workspace/applyEdit"])
    refreshes = capabilities["workspace"].get("inlayHint", {}).get("refreshSupport")
    said = client.messages()
    assert said == [] if refreshes else [text.partition(":")[0] for text in said] == ["saxpy"]
    assert await client.stop() == 0


@pytest.mark.slow
async def test_a_client_that_only_counts_code_points_is_understood(started: Starter) -> None:
    capabilities = with_literals() | {"general": {"positionEncodings": ["utf-32"]}}
    client = await started(capabilities, initializationOptions=QUIET)
    assert client.encoding == "utf-32"
    await client.choose((await client.actions(BODY))["DICE: fill selection"])
    candidates = await client.until_offered(BODY)
    (on_offer,) = await client.ask("dice/candidates", {"uri": client.uri})
    assert on_offer["range"] == client.range_of(BODY)
    await client.choose(next(iter(candidates.values())))
    assert client.text == TEXT.replace(BODY, on_offer["candidates"][0]["newText"])


# What a client may lack


@pytest.mark.slow
async def test_a_client_that_says_nothing_is_asked_nothing(started: Starter) -> None:
    """No progress, no configuration, no refresh, no hints, no lenses: the results are in the actions and the hover."""
    client = await started({}, Manners(takes_edits=False), initializationOptions={"candidates": 2})
    assert client.encoding == "utf-16"
    assert "inlayHintProvider" not in client.offered and "codeLensProvider" not in client.offered
    await client.until_hover(NAME, "verified in")
    await client.choose((await client.actions(BODY))["DICE: fill selection"])
    candidates = await client.until_offered(BODY)
    said = await client.hover("int i = blockIdx")
    assert "A " in said and "verified" in said
    await client.choose(next(iter(candidates.values())))
    assert client.text == TEXT
    await client.until(lambda: [text for text in client.messages() if text.startswith("Not applied: ")])
    assert set(client.undeclared) <= {"workspace/applyEdit"}
    assert await client.stop() == 0


async def test_settings_that_are_only_sent_are_taken(started: Starter) -> None:
    """Without `workspace/configuration` the settings are those of `didChangeConfiguration`."""
    client = await started(with_literals(), initializationOptions=NO_FILL)
    await client.actions(BODY)
    client.notify("workspace/didChangeConfiguration", {"settings": {"dice": {"candidates": 0}}})
    (message,) = await client.until(client.messages)
    assert "dice.candidates must be between 1 and 64, not 0; 2 is used" in message
    assert client.undeclared == []


async def test_any_language_id_will_do(started: Starter) -> None:
    client = await started(with_literals(), language="cpp", initializationOptions=NO_FILL)
    assert list(await client.actions(BODY)) == FILLS
    for language in ("c++", "cuda-cpp", "cu", ""):
        client.notify("textDocument/didClose", {"textDocument": {"uri": client.uri}})
        client.open(client.uri, TEXT, language=language)
        await client.until_hover(NAME, "saxpy")
        assert list(await client.actions(BODY)) == FILLS


async def test_the_first_menu_of_a_long_file_is_not_empty(started: Starter) -> None:
    """An editor that asks as it opens a file keeps an empty answer until its cursor moves."""
    client = await started(with_literals(), initializationOptions=NO_FILL)
    client.notify("textDocument/didClose", {"textDocument": {"uri": client.uri}})
    client.open(client.uri, TEXT + "".join(f"__global__ void k{i}(float* y) {{ y[0] = {i}; }}\n" for i in range(1500)))
    assert list(await client.actions(BODY)) == FILLS


async def test_a_first_version_of_zero_is_a_version(started: Starter) -> None:
    """Eglot counts from 0."""
    client = await started(with_literals(), initializationOptions=NO_FILL)
    client.notify("textDocument/didClose", {"textDocument": {"uri": client.uri}})
    client.open(client.uri, TEXT, version=0)
    await client.until_hover(NAME, "saxpy")
    fill = (await client.actions(BODY))["DICE: fill selection"]
    assert fill["command"]["arguments"][0]["version"] == 0


async def test_refused_candidates_are_shown_only_where_they_can_be_disabled(started: Starter) -> None:
    """A client without `disabledSupport` would let its user choose them."""
    client = await started(with_literals(), initializationOptions=QUIET)
    await client.choose((await client.actions(BODY))["DICE: fill selection"])
    await client.until_offered(BODY)
    context: dict[str, Any] = {"diagnostics": []}
    found = await client.of_document("textDocument/codeAction", range=client.range_of(BODY), context=context)
    assert found and not [item for item in found if "disabled" in item or "tags" in item]


async def test_the_kinds_that_an_editor_asks_for_are_a_hierarchy(started: Starter) -> None:
    """Emacs and Helix ask for `refactor` or `refactor.rewrite`, on save for `source`."""
    client = await started(with_literals(), initializationOptions=NO_FILL)
    await client.actions(BODY)

    async def of_kind(*only: str) -> list[str]:
        context = {"diagnostics": [], "only": list(only)}
        found = await client.of_document("textDocument/codeAction", range=client.range_of(BODY), context=context)
        return [item["title"] for item in found]

    assert await of_kind("refactor") == await of_kind("refactor.rewrite") == await of_kind("") == FILLS
    assert await of_kind("source") == await of_kind("source.fixAll") == await of_kind("quickfix") == []


# Faults of the server that these editors show


async def test_a_client_without_action_literals_gets_commands(started: Starter) -> None:
    client = await started(dict(EDITS), initializationOptions=NO_FILL)
    actions = await client.actions(BODY)
    assert list(actions)[:2] == FILLS
    assert all(isinstance(item["command"], str) and "kind" not in item for item in actions.values())


@pytest.mark.slow
async def test_an_edit_is_tried_even_if_the_client_did_not_say_that_it_takes_them(started: Starter) -> None:
    client = await started({"textDocument": {"codeAction": LITERALS}}, initializationOptions=QUIET)
    await client.choose((await client.actions(BODY))["DICE: fill selection"])
    await client.choose(next(iter((await client.until_offered(BODY)).values())))
    await client.until(lambda: client.text != TEXT)


@pytest.mark.slow
async def test_a_user_may_think_about_an_edit(started: Starter) -> None:
    client = await started(with_literals(), Manners(asks_user_s=6), initializationOptions=QUIET)
    await client.choose((await client.actions(BODY))["DICE: fill selection"])
    await client.choose(next(iter((await client.until_offered(BODY)).values())))
    await client.until(lambda: client.text != TEXT)
    await client.until_hover(NAME, "verified in")
    assert not [text for text in client.messages() if "applied" in text]
    assert "| A " not in await client.hover("blockIdx.x * blockDim.x"), "the server knows that it was taken"


async def test_a_chosen_fill_does_not_keep_the_editor_waiting(started: Starter) -> None:
    """Eglot and lsp-mode wait for the answer of every command, and lsp-mode for 10 s at most."""
    client = await started(with_literals(), initializationOptions={**QUIET, "candidates": 64})
    fill = (await client.actions(BODY))["DICE: fill selection"]
    await client.choose(fill)
    (on_offer,) = await client.ask("dice/candidates", {"uri": client.uri})
    assert on_offer["running"], "the command was answered before the fill had ended"


@pytest.mark.slow
async def test_an_editor_that_does_not_refresh_is_told_of_the_end_of_a_fill(started: Starter) -> None:
    """Helix, Eglot, Kate and vim-lsp ask for hints after an edit or a scroll, not when the server has news."""
    client = await started(with_literals(inlayHint={}), initializationOptions=QUIET)
    await client.choose((await client.actions(BODY))["DICE: fill selection"])
    await client.until_offered(BODY)
    (message,) = await client.until(client.messages)
    assert "saxpy" in message and "A " in message


async def test_our_requests_are_numbered(started: Starter) -> None:
    capabilities = {"workspace": {"configuration": True}, "textDocument": {"codeAction": LITERALS}}
    client = await started(capabilities, initializationOptions=NO_FILL)
    await client.until(lambda: client.requests)
    assert all(isinstance(request["id"], int) for request in client.requests)


async def test_lenses_are_offered_to_a_client_that_can_refresh_them(started: Starter) -> None:
    client = await started({"workspace": {"codeLens": {"refreshSupport": True}}}, initializationOptions=NO_FILL)
    assert client.offered.get("codeLensProvider")


@pytest.mark.slow
async def test_a_client_without_document_changes_gets_changes(started: Starter) -> None:
    capabilities = {"textDocument": {"codeAction": LITERALS}, "workspace": {"applyEdit": True}}
    client = await started(capabilities, Manners(only_changes=True), initializationOptions=QUIET)
    await client.choose((await client.actions(BODY))["DICE: fill selection"])
    await client.choose(next(iter((await client.until_offered(BODY)).values())))
    await client.until(lambda: client.text != TEXT)
    assert "documentChanges" not in client.edits[0], "Kate would apply both"
