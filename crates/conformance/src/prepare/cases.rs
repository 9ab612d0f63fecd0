//! The cases of prepare keys as a service, by subject. Those of one caller are the statements of Wow's compatibility kit.

pub mod alone;
pub mod together;

use std::sync::Arc;

use annals_core::{Clock, DEFAULT_TENANT, KeyValue, PrepareKeys, Release, Reserve, Store, Timestamp};

use crate::Subject;

async fn open(subject: &dyn Subject) -> (Arc<dyn Store>, Arc<dyn PrepareKeys>) {
    let store = subject.open().await;
    let keys = store.prepare_keys(DEFAULT_TENANT).expect("the tenant is declared");
    (store, keys)
}

fn value(json: &str) -> KeyValue {
    serde_json::from_str(json).expect("a value")
}

fn user(key: &str, json: &str) -> Reserve {
    Reserve::new("user", key, value(json))
}

fn held(key: &str) -> Release {
    Release::new("user", key)
}

fn held_as(key: &str, json: &str) -> Release {
    held(key).of_value(value(json))
}

/// Returns the clock's time plus this many milliseconds.
fn in_millis(subject: &dyn Subject, millis: i64) -> Timestamp {
    Timestamp::from_millis(subject.clock().now().as_millis() + millis)
}

/// Returns the value of a key that has not expired, as JSON.
async fn got(keys: &Arc<dyn PrepareKeys>, key: &str) -> Option<String> {
    let holder = keys.get("user", key).await.expect("it is read");
    holder.map(|holder| serde_json::to_string(&holder.value).expect("json"))
}

/// Returns the value of a key, expired or not, as JSON.
async fn seen(keys: &Arc<dyn PrepareKeys>, key: &str) -> Option<String> {
    let found = keys.look("user", key).await.expect("it is read");
    found.map(|found| serde_json::to_string(&found.holder.value).expect("json"))
}
