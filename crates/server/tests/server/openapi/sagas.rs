//! Sagas, as the document describes them.

use serde_json::json;

use super::Described;

impl Described {
    pub(super) async fn sagas(&mut self) {
        let definition = json!({
            "start": {"on": ["saga_opened"]}, "correlate": "$aggregate.id", "context": {"by": "$data.by"}, "cancel_on": ["saga_closed"],
            "limit_ms": 3_600_000, "version": 1, "steps": [
                {"name": "knock", "publish": {"type": "knocked", "data": {"by": "$context.by"}}, "await": {"on": ["heard"]}}
            ]
        });
        let one = "/v1/saga-definitions/door";
        self.exchange("put", one, Some(definition.clone()), 201).await;
        self.put(one, definition).await;
        self.get("/v1/saga-definitions?limit=5").await;
        self.get(one).await;
        let commit = json!({"aggregate": {"name": "door", "id": "saga"}, "events": [{"type": "saga_opened", "data": {"by": "me"}}]});
        self.exchange("post", "/v1/commits", Some(commit), 201).await;
        let list = "/v1/sagas?name=door&state=running&execution_id=saga&limit=5";
        while self.get(list).await["items"][0]["steps"][0]["state"] != "awaiting" {
            tokio::task::yield_now().await;
        }
        let id = self.get(list).await["items"][0]["id"].as_str().expect("an id").to_owned();
        self.get(&format!("/v1/sagas/{id}")).await;
        self.get("/v1/sagas/statistics").await;
        self.exchange("post", &format!("/v1/sagas/{id}/retry"), Some(json!({"reason": "a test"})), 409).await;
        self.post(&format!("/v1/sagas/{id}/cancel"), json!({"reason": "a test", "by": "me"})).await;
        while self.get(&format!("/v1/sagas/{id}")).await["state"] != "cancelled" {
            tokio::task::yield_now().await;
        }
        self.exchange("delete", one, Some(json!({"reason": "a test"})), 200).await;
        self.exchange("get", one, None, 404).await;
    }
}
