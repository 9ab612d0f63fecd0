"""Commits, reads and follows with a client that was generated from the OpenAPI document: commit_read_follow.py URL [KEY]"""

import json
import sys

from annals_client import AuthenticatedClient, Client
from annals_client.api.commits import commit
from annals_client.api.log import follow_log, read_event, read_log
from annals_client.models import Aggregate, CommitAnswer, Document, Event, LogPage, NewCommit, NewEvent, Problem

URL, KEY = sys.argv[1], sys.argv[2:]


def connected():
    return AuthenticatedClient(base_url=URL, token=KEY[0]) if KEY else Client(base_url=URL)


client = connected()


def placed(total, expected_version):
    data = Document.from_dict({"total": total, "lines": [{"sku": "tea"}]})
    return NewCommit(
        aggregate=Aggregate(name="order", id="o-1"),
        events=[NewEvent(type_="order_placed", data=data)],
        expected_version=expected_version,
        request_id=f"request-{total}",
    )


# Committing: an answer, the same answer to a retry, and a refusal with its code.
first = commit.sync(client=client, body=placed(10, 0))
assert isinstance(first, CommitAnswer) and first.version == 1 and not first.duplicate, first
again = commit.sync(client=client, body=placed(10, 0))
assert isinstance(again, CommitAnswer) and again.duplicate and again.commit_id == first.commit_id, again
refused = commit.sync(client=client, body=placed(20, 7))
assert isinstance(refused, Problem) and refused.code == "version_conflict" and refused.status == 409, refused
assert refused["actual_version"] == 1 and refused.type_ == "/errors/version_conflict", refused

# Reading: the page of the log, and one event.
page = read_log.sync(client=client, types="order_placed")
assert isinstance(page, LogPage) and page.head == 1 and len(page.events) == 1, page
event = read_event.sync(sequence_number=0, client=client)
assert isinstance(event, Event) and event.data.to_dict() == {"total": 10, "lines": [{"sku": "tea"}]}, event
assert event == page.events[0] and event.aggregate.id == "o-1", event
missing = read_event.sync(sequence_number=99, client=client)
assert isinstance(missing, Problem) and missing.code == "unknown_event", missing

# Following: what is there, and what is committed while the stream is open.
totals = []
with client.get_httpx_client().stream(**follow_log._get_kwargs(from_="0")) as stream:
    assert stream.status_code == 200, stream.status_code
    for line in stream.iter_lines():
        if not line.startswith("data:"):
            continue
        event = Event.from_dict(json.loads(line.removeprefix("data:")))
        totals.append(event.data["total"])
        if len(totals) == 3:
            break
        answer = commit.sync(client=connected(), body=placed(10 * (len(totals) + 1), len(totals)))
        assert isinstance(answer, CommitAnswer), answer
print(json.dumps({"followed": totals}))
