//! Random changes of prepare keys.

use annals_core::{KeyChanges, KeyValue, Release, Reserve, Timestamp};

use super::{EPOCH, Operations, Variety};
use crate::words::{KEYS, pick};

/// How long after [`EPOCH`] reservations expire at most, in milliseconds. Some have expired before they are made.
const TTL_MILLIS_MAX: i64 = 400;

impl Operations {
    /// Returns changes of keys, for one commit in `one_in`. They are content, so that the same request has the same changes.
    pub(super) fn keys(&self, one_in: u8, content: &mut fastrand::Rng) -> KeyChanges {
        let mut keys = KeyChanges::default();
        if self.shape.variety == Variety::Uniform || content.u8(0..one_in) > 0 {
            return keys;
        }
        for (name, key) in KEYS {
            if content.u8(0..6) == 0 {
                let value = content.bool().then(|| value(content));
                keys.release.push(Release { value, ..Release::new(*name, *key) });
            }
            if content.u8(0..4) == 0 {
                let reserve = Reserve::new(*name, *key, value(content));
                let ttl_at = content.bool().then(|| EPOCH.as_millis() + content.i64(0..TTL_MILLIS_MAX));
                keys.reserve.push(Reserve { ttl_at: ttl_at.map(Timestamp::from_millis), ..reserve });
            }
        }
        keys
    }
}

/// Returns a value. Two of the documents differ only in the order of their fields.
fn value(random: &mut fastrand::Rng) -> KeyValue {
    let json = pick(random, &["\"u-1\"", "7", "7.0", r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#]);
    serde_json::from_str(json).unwrap_or_else(|_| unreachable!("the texts above are JSON"))
}
