"""Names of checkpoints, the default, and pulling from a hub that runs on this machine."""

import hashlib
import http.server
import json
import threading

import pytest

from dice_lsp.diffusion import registry
from dice_lsp.diffusion.checkpoint import CheckpointError, load
from tests.diffusion.small import write_checkpoint


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))


def test_names_become_folders(tmp_path):
    folder = write_checkpoint(tmp_path / "mine")
    assert registry.resolve(str(folder)) == folder
    pulled = write_checkpoint(registry.pulled_dir() / "someone--small")
    assert registry.resolve("someone/small") == registry.resolve("small") == pulled
    write_checkpoint(registry.pulled_dir() / "another--small")
    with pytest.raises(CheckpointError, match="several pulled checkpoints are named small"):
        registry.resolve("small")
    with pytest.raises(
        CheckpointError, match="someone/else is not on this machine: run `dice-lsp model pull someone/else`"
    ):
        registry.resolve("someone/else")
    with pytest.raises(CheckpointError, match="there is no checkpoint 'x'"):
        registry.resolve("x")


def test_the_default_is_written_listed_and_read(tmp_path):
    assert registry.user_default_model() is None
    write_checkpoint(registry.pulled_dir() / "someone--small", layout="dice")
    registry.user_config_path().parent.mkdir(parents=True)
    registry.user_config_path().write_text('{"candidates": 3}')
    registry.use("someone/small")
    assert registry.user_default_model() == "someone/small"
    assert json.loads(registry.user_config_path().read_text())["candidates"] == 3
    entries = {entry.name: entry for entry in registry.list_checkpoints()}
    assert set(entries) == {"tiny", "someone/small"}
    small = entries["someone/small"]
    assert small.default and small.layout == "dice" and small.problem is None and small.size_bytes > 1000
    assert small.parameters.endswith("K") and not entries["tiny"].default
    folder = write_checkpoint(tmp_path / "mine")
    registry.use(str(folder))
    assert registry.user_default_model() == str(folder)
    assert [entry.name for entry in registry.list_checkpoints() if entry.default] == [str(folder)]
    with pytest.raises(CheckpointError):
        registry.use("nothing")
    assert registry.user_default_model() == str(folder)


def test_a_broken_one_is_listed_with_its_problem():
    folder = write_checkpoint(registry.pulled_dir() / "someone--small")
    (folder / "model.safetensors").unlink()
    (entry,) = [entry for entry in registry.list_checkpoints() if entry.name == "someone/small"]
    assert "has no weights" in entry.problem and entry.parameters == "?"


class Hub(http.server.ThreadingHTTPServer):
    """As much of the Hugging Face hub as a pull needs."""

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.folder = folder
        self.files = {file.name: file.read_bytes() for file in folder.iterdir()}
        self.fetched: list[str] = []
        self.ranges: list[str] = []
        self.cut: str | None = None
        """The file whose connection breaks half way."""

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class HubHandler(http.server.BaseHTTPRequestHandler):
    server: Hub
    revision = "0123456789abcdef0123456789abcdef01234567"

    def log_message(self, *arguments):
        pass

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, body: bool):
        path = self.path.partition("?")[0]
        if path == "/api/models/someone/small":
            siblings = [{"rfilename": name, "size": len(data)} for name, data in self.server.files.items()]
            for item in siblings:
                if item["rfilename"].endswith(".safetensors"):
                    digest = hashlib.sha256(self.server.files[item["rfilename"]]).hexdigest()
                    item["lfs"] = {"sha256": digest, "size": item["size"], "pointerSize": 130}
            info = {
                "id": "someone/small", "modelId": "someone/small", "sha": self.revision, "private": False, "tags": [],
                "siblings": siblings, "cardData": {"license": "apache-2.0"}, "downloads": 0, "likes": 0,
            }  # fmt: skip
            self.reply(200, json.dumps(info).encode(), {"Content-Type": "application/json"}, body)
            return
        name = path.rpartition("/")[2]
        data = self.server.files.get(name)
        if data is None or not path.startswith(f"/someone/small/resolve/{self.revision}/"):
            self.reply(404, b"{}", {"X-Error-Code": "RepoNotFound"}, body)
            return
        headers = {
            "ETag": f'"{hashlib.sha256(data).hexdigest()}"',
            "X-Repo-Commit": self.revision,
            "Accept-Ranges": "bytes",
        }
        wanted = self.headers.get("Range")
        start = 0
        if body:
            self.server.fetched.append(name)
            if wanted:
                start = int(wanted.removeprefix("bytes=").partition("-")[0])
                self.server.ranges.append(f"{name} {start}")
                headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        cut = body and self.server.cut == name
        self.reply(206 if start else 200, data[start:], headers, body, cut)

    def reply(self, status, data, headers, body, cut=False):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            self.wfile.flush()
            self.connection.close()


@pytest.fixture
def hub(tmp_path):
    folder = write_checkpoint(tmp_path / "remote", layout="dice", hidden_size=64)
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    (folder / "modeling_sdar.py").write_text("raise SystemExit")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    server = Hub(folder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_pull_shows_size_and_licence_and_fetches_no_code(hub):
    shown, progress = [], []
    path = registry.pull(
        "someone/small", lambda text: shown.append(text) or True, lambda *a: progress.append(a), endpoint=hub.address
    )
    assert path == registry.pulled_dir() / "someone--small" == registry.resolve("someone/small")
    assert (
        "someone/small at 0123456789ab" in shown[0]
        and "licence: apache-2.0" in shown[0]
        and "MiB in 4 files" in shown[0]
    )
    assert progress[-1][0] == progress[-1][1] > 10_000
    assert {file.name for file in path.iterdir()} == {
        ".revision",
        "config.json", "model.safetensors", "tokenizer.json", "README.md",
    }  # fmt: skip
    assert load(path).network.config.hidden_size == 64
    (entry,) = [entry for entry in registry.list_checkpoints() if entry.name == "someone/small"]
    assert entry.licence == "apache-2.0"


def test_pull_fetches_nothing_without_consent(hub):
    assert registry.pull("someone/small", lambda text: False, lambda *a: None, endpoint=hub.address) is None
    assert hub.fetched == [] and not registry.pulled_dir().exists()


def test_an_interrupted_pull_goes_on(hub, monkeypatch):
    hub.cut = "model.safetensors"
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    # The client writes whole chunks only, and the file is smaller than one.
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 4096)
    with pytest.raises(CheckpointError, match="could not be fetched: .*; the same command goes on where it stopped"):
        registry.pull("someone/small", lambda text: True, lambda *a: None, endpoint=hub.address)
    with pytest.raises(CheckpointError, match="is not on this machine"):
        registry.resolve("someone/small")
    part = (registry.pulled_dir() / "someone--small" / "model.safetensors.part").stat().st_size
    assert part > 0
    hub.cut = None
    hub.ranges.clear()
    hub.fetched.clear()
    path = registry.pull("someone/small", lambda text: True, lambda *a: None, endpoint=hub.address)
    assert load(path).network.config.hidden_size == 64
    assert hub.ranges == [f"model.safetensors {part}"] and hub.fetched.count("model.safetensors") == 1
    # Nothing is left to fetch.
    hub.fetched.clear()
    registry.pull("someone/small", lambda text: True, lambda *a: None, endpoint=hub.address)
    assert hub.fetched == []


def test_a_damaged_part_is_found_and_deleted(hub):
    target = registry.pulled_dir() / "someone--small"
    target.mkdir(parents=True)
    (target / ".revision").write_text(HubHandler.revision)
    size = len(hub.files["model.safetensors"])
    (target / "model.safetensors.part").write_bytes(b"x" * (size // 2))
    with pytest.raises(CheckpointError, match="model.safetensors of someone/small arrived damaged and was deleted"):
        registry.pull("someone/small", lambda text: True, lambda *a: None, endpoint=hub.address)
    assert load(registry.pull("someone/small", lambda text: True, lambda *a: None, endpoint=hub.address))


def test_without_a_callback_a_bar_is_drawn(hub, capsys):
    registry.pull("someone/small", lambda text: True, endpoint=hub.address)
    assert "someone/small" in capsys.readouterr().err


def test_what_cannot_be_pulled_is_said(hub):
    with pytest.raises(CheckpointError, match="'small' is no Hugging Face id: write OWNER/NAME"):
        registry.pull("small", lambda text: True)
    with pytest.raises(CheckpointError, match="someone/other cannot be looked up"):
        registry.pull("someone/other", lambda text: True, endpoint=hub.address)
    del hub.files["model.safetensors"]
    with pytest.raises(CheckpointError, match="no config.json with safetensors beside it"):
        registry.pull("someone/small", lambda text: True, endpoint=hub.address)
