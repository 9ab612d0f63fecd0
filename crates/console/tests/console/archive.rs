//! What the tests find in the archive.

use reqwest::Method;
use serde_json::json;

use crate::running::{HOSTILE, Running};

impl Running {
    /// Sets a rule and a hold, archives one event and leaves another one that can be archived. The hold selects neither.
    pub async fn fill_archive(&self, tenant: &str) {
        for (page, id) in [("archive", "n-1"), ("notes", "n-2")] {
            let data = json!({"text": HOSTILE, "secret": format!("of {tenant}")});
            let note =
                json!({"aggregate": {"name": "note", "id": id}, "events": [{"type": "note_taken", "data": data}]});
            let committed = self.put(tenant, Method::POST, "/v1/commits", note).await;
            let event = &committed["events"][0]["id"];
            self.is(page, event);
            if page == "archive" {
                let path = format!("/v1/events/{}", event.as_str().expect("an id"));
                self.put(tenant, Method::DELETE, &path, json!({"reason": HOSTILE})).await;
            }
        }
        let rule = json!({"ttl_days": 30, "archive": "collection", "reason": HOSTILE});
        self.put(tenant, Method::PUT, "/v1/retention/note_taken", rule).await;
        let hold = json!({"user_id": HOSTILE, "reason": HOSTILE});
        self.put(tenant, Method::PUT, "/v1/holds/note_taken", hold).await;
    }
}
