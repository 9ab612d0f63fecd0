//! Event types, topics and consumer groups.

use serde_json::json;

use super::Described;

impl Described {
    pub(super) async fn transport(&mut self) {
        self.types().await;
        self.topics().await;
        self.groups().await;
    }

    async fn types(&mut self) {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        let parcel = json!({"generation": 1, "category": "command", "schema": schema, "policy": "enforce"});
        self.exchange("put", "/v1/types/parcel", Some(parcel.clone()), 201).await;
        self.put("/v1/types/parcel", parcel).await;
        self.get("/v1/types/parcel").await;
        self.get("/v1/types?limit=1").await;
        self.put("/v1/types", json!({"unknown": "accept"})).await;
        self.get("/asyncapi.json").await;
        self.exchange("get", "/v1/types/letter", None, 404).await;
    }

    async fn topics(&mut self) {
        self.get("/v1/topics?limit=1").await;
        self.get("/v1/topics/parcel").await;
        self.post("/v1/topics/parcel/apply", json!({"reason": "a test", "by": "me"})).await;
        self.exchange("get", "/v1/topics/letter", None, 404).await;
    }

    async fn groups(&mut self) {
        for id in ["p-1", "p-2", "p-3", "p-4"] {
            let commit =
                json!({"aggregate": {"name": "parcel", "id": id}, "events": [{"type": "parcel", "data": {"n": 1}}]});
            self.exchange("post", "/v1/commits", Some(commit), 201).await;
        }
        let retry =
            json!({"first_ms": 60_000, "factor": 2, "max_ms": 60_000, "jitter": 0.1, "attempts": 5, "then": "block"});
        let definition = json!({"topics": ["parcel"], "start": "earliest", "in_flight": 4, "retry": retry});
        self.exchange("put", "/v1/groups/depot", Some(definition.clone()), 201).await;
        self.put("/v1/groups/depot", definition).await;
        let reason = json!({"reason": "a test", "by": "me"});
        for act in ["pause", "resume"] {
            self.post(&format!("/v1/groups/depot/{act}"), reason.clone()).await;
        }
        for act in ["retry", "skip", "park"] {
            let pull = json!({"max": 1, "wait_ms": 5_000, "lease_ms": 30_000, "worker": "w"});
            let pulled = self.post("/v1/groups/depot/pull", pull).await;
            let delivery = &pulled["deliveries"][0];
            let failed = json!([{"token": delivery["token"], "failure": {"reason": "away", "never": true}}]);
            self.post("/v1/groups/depot/settle", json!({ "results": failed })).await;
            self.get("/v1/groups/depot/partitions").await;
            let key = delivery["partition"].as_str().expect("a key").replace('/', "%2F");
            self.post(&format!("/v1/groups/depot/partitions/{key}/{act}"), reason.clone()).await;
        }
        self.get("/v1/groups").await;
        self.get("/v1/groups/depot").await;
        self.dead_letters().await;
        self.exchange("delete", "/v1/groups/depot", Some(reason), 200).await;
        self.exchange("get", "/v1/groups/depot", None, 404).await;
    }

    /// Of the message that was parked.
    async fn dead_letters(&mut self) {
        let listed = self.get("/v1/dead-letters?group=depot&status=pending").await;
        let id = listed["items"][0]["id"].as_str().expect("the parked message").to_owned();
        self.get(&format!("/v1/dead-letters/{id}")).await;
        let reason = json!({"reason": "a test", "by": "me"});
        for act in ["retry", "discard"] {
            let of_topic = json!({"field": "original_topic", "operator": "EQ", "value": "parcel"});
            let dry = json!({"condition": of_topic, "reason": "a test", "dry_run": true});
            assert_eq!(self.post(&format!("/v1/dead-letters/{act}"), dry).await["total"], 1);
            self.post(&format!("/v1/dead-letters/{id}/{act}"), reason.clone()).await;
        }
        self.exchange("post", &format!("/v1/dead-letters/{id}/retry"), Some(reason.clone()), 409).await;
        let ids = json!({"ids": [id, "group.depot.77"], "reason": "a test"});
        assert_eq!(self.post("/v1/dead-letters/discard", ids).await["failed"], 2);
        self.exchange("get", "/v1/dead-letters/group.depot.77", None, 404).await;
        self.exchange("get", "/v1/dead-letters?status=lost", None, 422).await;
        let statistics = self.get("/v1/dead-letters/statistics").await;
        let topics = statistics["topics"].as_array().expect("topics");
        let parcels = topics.iter().find(|of| of["topic"] == "parcel").expect("the topic");
        assert_eq!(parcels["status_breakdown"], json!({"discarded": 1}));
        let policy = json!({"strategy": "manual", "reason": "a test"});
        self.put("/v1/dead-letters/policies/parcel", policy).await;
        self.get("/v1/dead-letters/policies").await;
        self.get("/v1/dead-letters/policies/parcel").await;
        self.exchange("delete", "/v1/dead-letters/policies/parcel", Some(reason), 200).await;
    }
}
