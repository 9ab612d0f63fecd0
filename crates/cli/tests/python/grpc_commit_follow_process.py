"""Commits, follows and processes with a client that was generated from the protocol: grpc_commit_follow_process.py URL"""

import json
import queue
import sys
import urllib.request

import grpc
from annals.v1 import annals_pb2 as messages
from annals.v1 import annals_pb2_grpc as services

URL = sys.argv[1]
DEADLINE = 60

channel = grpc.insecure_channel(URL.removeprefix("http://"), options=[("grpc.enable_http_proxy", 0)])
commits = services.CommitsStub(channel)


def commit(total, expected_version):
    commit = {
        "aggregate": {"name": "order", "id": "o-1"},
        "events": [{"type": "order_placed", "data": {"total": total}}],
        "expected_version": expected_version,
        "request_id": f"request-{total}",
    }
    document = messages.Document(json=json.dumps(commit).encode())
    return commits.Commit(messages.CommitRequest(commit=document), timeout=DEADLINE)


def http(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data=data, method=method)
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
        return json.load(answer)


# Committing: an outcome, the same outcome of a retry, and a refusal with its code and its document.
first = commit(10, 0)
assert first.version == 1 and first.first_sequence_number == 0 and not first.duplicate, first
again = commit(10, 0)
assert again.duplicate and again.commit_id == first.commit_id, again
try:
    raise AssertionError(commit(20, 7))
except grpc.RpcError as refused:
    assert refused.code() == grpc.StatusCode.ABORTED, refused
    metadata = dict(refused.trailing_metadata())
    assert metadata["annals-code"] == "version_conflict", metadata
    assert json.loads(metadata["annals-problem-bin"])["actual_version"] == 1, metadata

# Following: what is there, and what is committed while the call is open.
totals = []
following = services.LogStub(channel).Follow(messages.FollowRequest(), timeout=DEADLINE)
started = next(following).started
assert (getattr(started, "from"), started.head) == (0, 1), started
for response in following:
    if response.WhichOneof("response") != "event":
        continue
    totals.append(json.loads(response.event.document.json)["data"]["total"])
    if len(totals) == 3:
        break
    commit(10 * (len(totals) + 1), len(totals))
following.cancel()

# Processing: with credit for one delivery at a time; the first event fails once.
http("PUT", "/v1/handlers/billing", {"types": ["order_placed"], "partition_by": "aggregate"})
asks = queue.Queue()
asks.put(messages.ProcessRequest(attach=messages.Attach(handler="billing", worker="python", credit=1)))
processed = []
for answer in services.HandlersStub(channel).Process(iter(asks.get, None), timeout=DEADLINE):
    kind = answer.WhichOneof("response")
    if kind == "settled":
        assert all(result.settled for result in answer.settled.results), answer
    if kind != "delivery":
        continue
    delivery = answer.delivery
    processed.append([delivery.position, delivery.attempt])
    settlement = messages.Settlement(token=delivery.token)
    if processed == [[0, 1]]:
        settlement.failure.reason = "no stock"
        settlement.failure.retry_after_ms = 1
    if processed[-1] == [0, 2]:
        assert delivery.last_reason == "no stock", delivery
    asks.put(messages.ProcessRequest(settle=messages.Settle(settlements=[settlement], credit=1)))
    if len(processed) == 4:
        # The end of the requests ends the call, after what was settled before.
        asks.put(None)
state = http("GET", "/v1/handlers/billing")
assert (state["position"], state["lag"]) == (3, 0), state
print(json.dumps({"followed": totals, "processed": processed}))
