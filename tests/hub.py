"""A Hub on this computer: one repository, served by the protocol that the Hub's client speaks.

Knows the client's requests, how to hold a file and how to break off. Must not know who downloads.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SHA = "0123456789abcdef0123456789abcdef01234567"
HUB_MODEL = "openai-community/gpt2"
_PIECE = 1 << 16


class Hub(BaseHTTPRequestHandler):
    """Answers with the repository's list or a file of it. Every served Hub is a class of its own.

    Attributes:
        folder: what is in the repository.
        repository: its name.
        status: every answer's status; only 200 comes with anything.
        is_gated: whether files are for those only who have accepted the license.
        card: the front matter of its README.
        gguf: what the Hub has read in the GGUF files.
        hidden: files that are not in the list.
        requested: files that were fetched.
        hold_at: files are held after this many bytes until `go_on` is set; 0 for never.
        breaks_at: the connection breaks after this many bytes of a file; 0 for never.
        url: where it is.
    """

    folder: Path
    repository: str = HUB_MODEL
    status: int = 200
    is_gated: bool = False
    card: dict[str, str] = {}  # noqa: RUF012 (replaced, never changed)
    gguf: dict[str, str] = {}  # noqa: RUF012
    hidden: frozenset[str] = frozenset()
    requested: list[str]
    hold_at: int = 0
    go_on: threading.Event
    breaks_at: int = 0
    url: str = ""

    def log_message(self, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        if self.status != 200:
            self.send_response(self.status)
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif path.startswith(f"/api/models/{self.repository}"):
            files = [file for file in self.folder.iterdir() if file.name not in self.hidden]
            # The tree of a commit, or the repository: the same files in other words.
            is_tree = "/tree/" in path
            name, content = ("path", "oid") if is_tree else ("rfilename", "blobId")
            listed = [
                {
                    "type": "file",
                    name: file.name,
                    "size": file.stat().st_size,
                    content: _content(file.name),
                }
                for file in files
            ]
            about = {"cardData": self.card, "gguf": self.gguf}
            whole = {"id": self.repository, "sha": SHA, "siblings": listed, **about}
            answer = listed if is_tree else whole
            self._send(json.dumps(answer).encode(), with_body)
        elif "/resolve/" not in path:
            self.send_error(404)  # what the client asks beside a repository's files
        elif self.is_gated:
            self.send_response(401)
            self.send_header("X-Error-Code", "GatedRepo")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            name = path.rsplit("/", 1)[-1]
            if with_body:
                self.requested.append(name)
            self._send((self.folder / name).read_bytes(), with_body, etag=_content(name))

    def _send(self, body: bytes, with_body: bool, etag: str = "list") -> None:
        begin = 0
        if asked := self.headers.get("Range", ""):
            begin = int(asked.removeprefix("bytes=").rstrip("-"))
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(body) - begin))
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(body) - 1}/{len(body)}")
        self.send_header("ETag", f'"{etag}"')
        self.send_header("X-Repo-Commit", SHA)
        self.end_headers()
        if with_body:
            self._send_in_pieces(body, begin)

    def _send_in_pieces(self, body: bytes, begin: int) -> None:
        for at in range(begin, len(body), _PIECE):
            if 0 < self.breaks_at <= at:
                self.close_connection = True
                return
            if 0 < self.hold_at <= at:
                self.go_on.wait()
            self.wfile.write(body[at : at + _PIECE])


def _content(name: str) -> str:
    """What the Hub would call the contents of a file."""
    return f"{name}-{SHA}"


@contextmanager
def hub_with(folder: Path) -> Iterator[type[Hub]]:
    """Serves a folder as the repository `HUB_MODEL`."""
    own = {"folder": folder, "requested": [], "go_on": threading.Event()}
    served = type("ServedHub", (Hub,), own)
    server = ThreadingHTTPServer(("127.0.0.1", 0), served)
    served.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield served
    finally:
        served.go_on.set()
        server.shutdown()
        server.server_close()
