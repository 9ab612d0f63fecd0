//! Partners and their events, as the document describes them.

use annals_core::Clock;
use annals_core::partners::{Answered, Outgoing, Sending, Signed, SigningSecret};
use annals_system::SystemClock;
use reqwest::Method;
use serde_json::{Value, json};

use super::Described;

/// Reaches no partner.
pub(super) struct Nowhere;

#[async_trait::async_trait]
impl Sending for Nowhere {
    async fn send(&self, _: Outgoing) -> Result<Answered, String> {
        Err("nobody is there".to_owned())
    }

    fn check(&self, _: &str) -> Result<(), String> {
        Ok(())
    }
}

impl Described {
    pub(super) async fn partners(&mut self) {
        let secret = SigningSecret::of_bytes(vec![7; 24]);
        let one = "/v1/partners/acme";
        let definition = json!({
            "name": "Acme", "url": "https://acme.example/events", "secrets": [secret.reveal()],
            "select": {"field": "type", "operator": "EQ", "value": "opened"}, "start": "beginning", "format": "record",
            "receive": {"aggregate": "parcel"}, "limits": {"concurrency": 2, "timeout_ms": 1000}, "retention_days": 30,
            "paused": false
        });
        self.exchange("put", one, Some(definition.clone()), 201).await;
        self.put(one, definition).await;
        self.get(one).await;
        self.get("/v1/partners?limit=5").await;
        let event = json!({"type": "shipped", "subject": "p-1", "data": {"n": 1}});
        let path = "/v1/partners/acme/events";
        self.exchange("post", path, Some(event.clone()), 401).await;
        let body = event.to_string();
        let signed = Signed::sign(&[secret], "w-1", SystemClock.now(), body.as_bytes());
        let mut ids = Vec::new();
        for status in [202, 200] {
            let request = self.server.request(Method::POST, path).header("content-type", "application/json");
            let request = request.header("webhook-id", &signed.id).header("webhook-timestamp", &signed.timestamp);
            let answer =
                self.server.send(request.header("webhook-signature", &signed.signature).body(body.clone())).await;
            assert_eq!(answer.status, status, "{}", answer.text());
            let answer: Value = serde_json::from_slice(&answer.body).expect("JSON");
            ids.push(answer["id"].as_str().expect("an id").to_owned());
        }
        assert_eq!(ids[0], ids[1]);
        let query = "direction=IN&status=SUCCESS&type=shipped&entity_id=p-1&due=false&limit=1";
        while self.get(&format!("{path}?{query}")).await["items"][0].is_null() {
            tokio::task::yield_now().await;
        }
        let event = format!("/v1/partner-events/{}", ids[0]);
        self.get(&event).await;
        let reason = json!({"reason": "a test", "by": "me"});
        self.exchange("post", &format!("{event}/cancel"), Some(reason.clone()), 409).await;
        self.post(&format!("{event}/resend"), reason.clone()).await;
        self.get("/v1/partners/acme/statistics").await;
        for (act, state) in [("pause", "paused"), ("resume", "running")] {
            let switched = self.post(&format!("/v1/partners/acme/{act}"), reason.clone()).await;
            assert_eq!((&switched["state"], &switched["secrets"]), (&json!(state), &json!(1)), "{switched}");
        }
        self.exchange("post", "/v1/partners/nobody/pause", Some(reason.clone()), 404).await;
        self.post("/v1/partners/acme/replay", json!({"from": 0, "to": 1, "reason": "a test"})).await;
        self.exchange("delete", one, Some(reason), 200).await;
        for path in [one, "/v1/partner-events/0123456789abcdef01234567"] {
            self.exchange("get", path, None, 404).await;
        }
    }
}
