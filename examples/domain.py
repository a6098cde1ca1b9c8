"""The service of a domain of notes, in plain Python: python3 examples/domain.py 9000 keeper@self NOTE

Each note is written into the ledger once, after the keeper of the domain has endorsed it. It keeps nothing, so that the
same call gets the same answer."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, KEEPER, TYPE = (sys.argv[1:] + ["9000", "keeper@self", "NOTE"][len(sys.argv) - 1 :])[:3]


def assemble(call):
    intent = call["intent"]
    text = intent["data"].get("text") if isinstance(intent["data"], dict) else None
    if not text:
        return {"result": "REVERT", "reason": "a note wants a text"}
    if text == "later":
        return {"result": "PARK", "reason": "its author is away"}
    return {
        "result": "OK",
        "assembled": {"text": text},
        "outputs": [{"id": "note." + intent["id"], "data": {"text": text}}],
        "plan": [
            {"name": "author", "type": "sign", "parties": [intent["party"]]},
            {"name": "keeper", "type": "endorse", "parties": [KEEPER]},
        ],
    }


def sign(call):
    return {"signature": "by " + call["party"] + ": " + call["hash"]}


def endorse(call):
    if not call.get("signatures"):
        return {"revert_reason": "its author has not signed it"}
    return {"endorsement": "seen " + call["hash"]}


def prepare(call):
    to = "note.intent." + call["intent"]["id"]
    return {"type": TYPE, "data": {"calls": [{"to": to, "method": "create"}]}}


CALLS = {"/assemble": assemble, "/sign": sign, "/endorse": endorse, "/prepare": prepare}


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(200 if self.path == "/health" else 404, {"ok": self.path == "/health"})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            status, answer = 200, CALLS[self.path](json.loads(body))
        except KeyError as missing:
            status, answer = (404, {}) if self.path not in CALLS else (400, {"missing": str(missing)})
        except ValueError as error:
            status, answer = 400, {"error": str(error)}
        self.answer(status, answer)

    def answer(self, status, body):
        out = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(out)))
        self.end_headers()
        self.wfile.write(out)

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(PORT)), Service).serve_forever()
