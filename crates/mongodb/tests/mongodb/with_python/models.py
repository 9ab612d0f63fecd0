import asyncio
import sys
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import pymongo
from beanie import Document, Indexed, init_beanie
from pydantic import BaseModel, ConfigDict, Field
from pymongo import ASCENDING, DESCENDING, AsyncMongoClient, IndexModel


def now() -> datetime:
    return datetime.now(timezone.utc)


class EventMetadata(BaseModel):
    service_name: str
    service_version: str
    user_id: str = Field(default_factory=lambda: str(uuid4()))
    environment: str = "production"


class EventDocument(Document):
    event_id: Indexed(str, unique=True) = Field(default_factory=lambda: str(uuid4()))
    event_type: str
    event_version: str = "1.0"
    timestamp: Indexed(datetime) = Field(default_factory=now)
    aggregate_id: Indexed(str) | None = None
    metadata: EventMetadata
    stored_at: datetime = Field(default_factory=now)
    ttl_expires_at: datetime = Field(default_factory=lambda: now() + timedelta(days=30))
    execution_id: str | None = None

    model_config = ConfigDict(from_attributes=True, extra="allow")

    class Settings:
        name = "events"
        use_state_management = True
        indexes = [
            IndexModel([("event_type", ASCENDING), ("timestamp", DESCENDING)], name="idx_event_type_ts"),
            IndexModel([("aggregate_id", ASCENDING), ("timestamp", DESCENDING)], name="idx_aggregate_ts"),
            IndexModel([("metadata.user_id", ASCENDING), ("timestamp", DESCENDING)], name="idx_meta_user_ts"),
            IndexModel([("metadata.service_name", ASCENDING), ("timestamp", DESCENDING)], name="idx_meta_service_ts"),
            IndexModel([("execution_id", ASCENDING)], name="idx_execution_id", sparse=True),
            IndexModel([("pod_name", ASCENDING)], name="idx_pod_name", sparse=True),
            IndexModel([("ttl_expires_at", ASCENDING)], name="idx_ttl", expireAfterSeconds=0),
            IndexModel([("event_type", ASCENDING), ("aggregate_id", ASCENDING)], name="idx_events_type_agg"),
            IndexModel([("aggregate_id", ASCENDING), ("timestamp", ASCENDING)], name="idx_events_agg_ts"),
            IndexModel([("event_type", ASCENDING), ("timestamp", ASCENDING)], name="idx_events_type_ts_asc"),
            IndexModel([("metadata.user_id", ASCENDING), ("timestamp", ASCENDING)], name="idx_events_user_ts"),
            IndexModel([("metadata.user_id", ASCENDING), ("event_type", ASCENDING)], name="idx_events_user_type"),
            IndexModel(
                [("event_type", ASCENDING), ("metadata.user_id", ASCENDING), ("timestamp", DESCENDING)],
                name="idx_events_type_user_ts",
            ),
            IndexModel(
                [
                    ("event_type", pymongo.TEXT),
                    ("metadata.service_name", pymongo.TEXT),
                    ("metadata.user_id", pymongo.TEXT),
                    ("execution_id", pymongo.TEXT),
                ],
                name="idx_text_search",
                language_override="none",
                default_language="english",
            ),
        ]


class EventArchiveDocument(Document):
    event_id: Indexed(str, unique=True)
    event_type: str
    event_version: str = "1.0"
    timestamp: Indexed(datetime)
    aggregate_id: str | None = None
    metadata: EventMetadata
    stored_at: datetime | None = None
    ttl_expires_at: datetime | None = None
    deleted_at: Indexed(datetime) = Field(default_factory=now)
    deleted_by: str | None = None
    deletion_reason: str | None = None

    model_config = ConfigDict(from_attributes=True, extra="allow")

    class Settings:
        name = "events_archive"
        indexes = [IndexModel([("event_type", ASCENDING)], name="event_type_1")]


async def main(url: str, database: str) -> None:
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url)
    # Beanie creates the indexes that it declares: those that are there have to be the same.
    await init_beanie(client[database], document_models=[EventDocument, EventArchiveDocument])
    for event in await EventDocument.find({"aggregate_id": "e-1"}).sort("_id").to_list():
        language = (event.model_extra or {}).get("language")
        metadata = event.metadata
        print("event", event.event_id, event.event_type, event.event_version, metadata.service_name, metadata.user_id, event.execution_id, language)
    by_user = await EventDocument.find({"metadata.user_id": "ada"}).count()
    by_text = await EventDocument.find({"$text": {"$search": "api"}}).count()
    print(f"by user: {by_user}, by text: {by_text}")
    for event in await EventArchiveDocument.find_all().to_list():
        beside = (event.model_extra or {})["annals"]["beside"]
        print("archived", event.event_id, event.event_type, beside["deleted_by"], event.deletion_reason)


asyncio.run(main(sys.argv[1], sys.argv[2]))
