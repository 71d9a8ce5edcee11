"""A model for Claude Code that follows a script: behind the Messages API, on a port of its own.

A prompt `DO command` is answered with a call of the shell tool once it is stored, and its result with how many such
prompts were seen.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "stop_sequence": None}
_USAGE = {"input_tokens": 1, "output_tokens": 1}


def _answer(messages, tools):
    content = [message["content"] for message in messages]
    blocks = [[{"type": "text", "text": one}] if isinstance(one, str) else one for one in content]
    texts = [block.get("text", "") for row in blocks for block in row]
    prompts = list(dict.fromkeys(text.strip() for text in texts if text.startswith("DO ")))
    if not tools or not prompts:
        return {"type": "text", "text": "ok"}
    command = {"command": prompts[-1].removeprefix("DO "), "description": "scripted"}
    if command["command"] in [block["input"].get("command") for row in blocks for block in row if "input" in block]:
        return {"type": "text", "text": f"{len(prompts)} prompts, the last: {prompts[-1]}"}
    return {"type": "tool_use", "id": f"toolu_{len(messages)}", "name": "Bash", "input": command}


def _events(block):
    yield "message_start", {"message": {**_MESSAGE, "content": [], "stop_reason": None, "usage": _USAGE}}
    if block["type"] == "text":
        empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
    else:
        empty, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    yield "content_block_start", {"index": 0, "content_block": empty}
    yield "content_block_delta", {"index": 0, "delta": delta}
    yield "content_block_stop", {"index": 0}
    yield "message_delta", {"delta": {"stop_reason": _stop(block), "stop_sequence": None}, "usage": _USAGE}
    yield "message_stop", {}


def _stop(block):
    return "tool_use" if block["type"] == "tool_use" else "end_turn"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self._send(b"", "text/plain")

    def do_HEAD(self):
        self._send(b"", "text/plain")

    def do_POST(self):
        given = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
        block = _answer(given.get("messages", []), given.get("tools"))
        if block["type"] == "tool_use":
            self.server.wait_until_stored(block["input"]["command"])
        if given.get("stream"):
            lines = (f"event: {name}\ndata: {json.dumps({'type': name, **one})}\n\n" for name, one in _events(block))
            self._send("".join(lines).encode(), "text/event-stream")
        else:
            whole = {**_MESSAGE, "content": [block], "stop_reason": _stop(block), "usage": _USAGE}
            self._send(json.dumps(whole).encode(), "application/json")

    def _send(self, data, kind):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def serve(wait_until_stored):
    """Serve in a thread of this process, and return the address; no command is asked for before it is stored."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.wait_until_stored = wait_until_stored
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"
