//! Work queues, as the document describes them.

use serde_json::json;

use super::Described;

impl Described {
    pub(super) async fn queues(&mut self) {
        let definition = json!({"cap": 2, "fair": true, "ageing_ms": 1_000, "lease_ms": 60_000, "pending_max": 3, "pending_max_per_user": 2});
        self.exchange("put", "/v1/queues/executions", Some(definition.clone()), 201).await;
        self.put("/v1/queues/executions", definition).await;
        self.exchange("put", "/v1/queues/executions", Some(json!({"cap": 0})), 422).await;
        let item = |id: &str| json!({"id": id, "priority": "high", "user": "eva", "payload": {"script": "print(1)"}});
        self.exchange("post", "/v1/queues/executions/enqueue", Some(item("x-1")), 201).await;
        self.post("/v1/queues/executions/enqueue", item("x-1")).await;
        self.exchange("post", "/v1/queues/executions/enqueue", Some(item("x-2")), 201).await;
        self.exchange("post", "/v1/queues/executions/enqueue", Some(item("x-3")), 429).await;
        self.get("/v1/queues/executions/items").await;
        self.get("/v1/queues/executions/items/x-1").await;
        self.exchange("get", "/v1/queues/executions/items/x-9", None, 404).await;
        let raise = json!({"priority": "critical", "reason": "a test", "by": "me"});
        self.exchange("patch", "/v1/queues/executions/items/x-2", Some(raise), 200).await;
        let taken = self.post("/v1/queues/executions/take", json!({"max": 2, "lease_ms": 60_000, "worker": "w"})).await;
        let tokens: Vec<_> =
            (0..2).map(|n| json!({"id": taken["items"][n]["id"], "token": taken["items"][n]["token"]})).collect();
        self.post("/v1/queues/executions/renew", json!({"items": tokens, "lease_ms": 30_000})).await;
        self.get("/v1/queues/executions/items?state=active&user=eva").await;
        self.get("/v1/queues/executions").await;
        let why = || Some(json!({"reason": "a test"}));
        self.exchange("post", "/v1/queues/executions/items/x-2/release", why(), 200).await;
        self.exchange("post", "/v1/queues/executions/items/x-9/release", why(), 404).await;
        self.post("/v1/queues/executions/release", json!({"items": [tokens[0]]})).await;
        self.post("/v1/queues/executions/done", json!({"id": tokens[1]["id"], "token": tokens[1]["token"]})).await;
        self.post("/v1/queues/executions/done", json!({"items": [{"id": tokens[0]["id"], "token": "0-0"}]})).await;
        self.get("/v1/queues").await;
        self.exchange("delete", "/v1/queues/executions/items/x-2", why(), 200).await;
        self.exchange("delete", "/v1/queues/executions", why(), 200).await;
        self.exchange("get", "/v1/queues/executions", None, 404).await;
    }
}
