//! The browse view and replays.

use serde_json::json;

use super::Described;

impl Described {
    pub(super) async fn browse(&mut self) {
        let reason = json!({"reason": "a test", "by": "me"});
        let view = json!({"state": "on", "retention_days": 30, "off_types": ["ping"], "reason": "a test", "by": "me"});
        self.put("/v1/events/view", view).await;
        let page = self.get("/v1/events?event_types=opened&sort=-timestamp&limit=1&skip=0&count_up_to=1").await;
        let id = page["items"][0]["event_id"].as_str().expect("an event").to_owned();
        self.get(&format!("/v1/events/{id}")).await;
        self.exchange("get", "/v1/events/nothing", None, 404).await;
        self.get("/v1/events/statistics?hours=1&failure_types=failed").await;
        self.get("/v1/events/export?format=csv&limit=2").await;
        self.get("/v1/events/view").await;
        self.post("/v1/events/view/rebuild", reason.clone()).await;
        self.archive(&id, &reason).await;
        let filter = json!({"event_types": ["opened"]});
        self.post("/v1/replays/preview", json!({"filter": filter, "target": {"kind": "test"}, "max_events": 2})).await;
        let replay = json!({
            "replay_type": "event_type", "filter": filter, "target": {"kind": "test"}, "order": "timestamp", "speed": 100.0,
            "batch_size": 10, "max_events": 2, "rate": 1000.0, "on_error": "skip", "retry_attempts": 1, "outage": "fail",
            "preserve_timestamps": false, "reason": "a test", "by": "me"
        });
        for act in ["start", "cancel"] {
            let created = self.post("/v1/replays", replay.clone()).await;
            let one = format!("/v1/replays/{}", created["session_id"].as_str().expect("an id"));
            self.post(&format!("{one}/{act}"), reason.clone()).await;
            self.get(&one).await;
            // It ends with the replay.
            self.get(&format!("{one}/follow")).await;
        }
        let slow = json!({"filter": filter, "target": {"kind": "test"}, "rate": 0.001});
        let created = self.post("/v1/replays", slow).await;
        let one = format!("/v1/replays/{}", created["session_id"].as_str().expect("an id"));
        for act in ["start", "pause", "resume"] {
            self.post(&format!("{one}/{act}"), reason.clone()).await;
        }
        self.get("/v1/replays?limit=1&status=running").await;
        self.exchange("get", "/v1/replays/nothing", None, 404).await;
        self.exchange("delete", "/v1/replays?older_than_hours=1", None, 200).await;
    }

    async fn archive(&mut self, id: &str, reason: &serde_json::Value) {
        let rule = json!({"ttl_days": 30, "archive": "collection", "dry_run": true, "reason": "a test", "by": "me"});
        self.put("/v1/retention/opened", rule).await;
        self.exchange("put", "/v1/retention/opened", Some(json!({"ttl_days": null})), 201).await;
        self.get("/v1/retention?limit=1").await;
        self.exchange("delete", "/v1/retention/opened", Some(reason.clone()), 200).await;
        self.exchange("delete", "/v1/retention/opened", Some(reason.clone()), 404).await;
        let hold = json!({"filter": {"event_ids": [id]}, "reason": "a test", "by": "me"});
        self.exchange("put", "/v1/holds/court", Some(hold), 201).await;
        self.put("/v1/holds/court", json!({"event_ids": [id]})).await;
        self.get("/v1/holds?limit=1").await;
        self.get("/v1/holds/court").await;
        let one = format!("/v1/events/{id}");
        self.exchange("delete", &one, Some(reason.clone()), 409).await;
        self.exchange("delete", "/v1/holds/court", Some(reason.clone()), 200).await;
        self.exchange("delete", "/v1/holds/court", Some(reason.clone()), 404).await;
        self.exchange("delete", &one, Some(reason.clone()), 200).await;
        self.get("/v1/events/archive?event_types=opened&limit=1").await;
        self.get("/v1/events/archive/files?limit=1").await;
        self.post(&format!("{one}/restore"), reason.clone()).await;
        self.exchange("post", &format!("{one}/restore"), Some(reason.clone()), 409).await;
    }
}
