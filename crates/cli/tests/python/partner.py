"""A partner that signs and verifies with the public library of Standard Webhooks: partner.py SECRET

Takes a line on standard input with the URL at which it sends events, answers with the URL at which it receives some, and prints what it
receives. Each further line of its input is the body of an event to send; the answer is printed.
"""

import json
import sys
import threading
import urllib.error
import urllib.request
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

webhook = Webhook(sys.argv[1])
printing = threading.Lock()


def say(**what):
    with printing:
        print(json.dumps(what), flush=True)


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            received = webhook.verify(body, headers)
        except WebhookVerificationError as error:
            say(refused=str(error))
            self.send_response(401)
        else:
            say(received=received, id=headers["webhook-id"])
            self.send_response(204)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def send(url, webhook_id, body):
    now = datetime.now(tz=timezone.utc)
    headers = {
        "content-type": "application/json",
        "webhook-id": webhook_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": webhook.sign(webhook_id, now, body),
    }
    request = urllib.request.Request(url, body.encode(), headers, method="POST")
    try:
        with urllib.request.urlopen(request) as answer:
            say(status=answer.status, answer=json.load(answer))
    except urllib.error.HTTPError as error:
        say(status=error.code, answer=json.load(error))


server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = sys.stdin.readline().strip()
say(url=f"http://127.0.0.1:{server.server_port}/events")
for n, line in enumerate(sys.stdin):
    send(url, f"from-python-{n}", line.strip())
