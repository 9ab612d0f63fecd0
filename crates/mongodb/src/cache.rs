//! The size of the server's cache, which bounds what one transaction can write: the sequencer writes all events of a commit in one
//! transaction, so that no reader sees half of it. MongoDB aborts a transaction that is too large for its cache (error 388); such a commit
//! is held (`sequencer/write.rs`).

use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{Document, RawDocumentBuf, doc};

use crate::layout::fields::integer;

/// The cache size that suffices for the largest commit that the limits allow; docs/mongodb.md names it.
pub(crate) const DUE_BYTES: i64 = 1024 * 1024 * 1024;
/// How long opening a store waits for the response.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// Warns if the primary's cache is smaller than large commits need. There is no warning if the user lacks the right to ask, or from a
/// mongos, which has no cache.
pub(crate) async fn warn_if_small(client: &Client) {
    let Some(bytes) = size(client).await else { return };
    if bytes < DUE_BYTES {
        tracing::warn!(
            cache_mib = bytes / 1024 / 1024,
            due_mib = DUE_BYTES / 1024 / 1024,
            "the cache of MongoDB is small: large commits can be held, because all events of a commit are one transaction; raise \
             storage.wiredTiger.engineConfig.cacheSizeGB (docs/mongodb.md)"
        );
    }
}

/// Returns the size of the primary's cache; `None` if the user lacks the right to ask, and from a mongos, which has none.
pub(crate) async fn size(client: &Client) -> Option<i64> {
    let admin = client.database("admin");
    // Excludes sections that take the server longer.
    let status = doc! { "serverStatus": 1, "repl": 0, "metrics": 0, "locks": 0, "tcmalloc": 0 };
    let status = tokio::time::timeout(ANSWER_TIME_MAX, admin.run_command(status).into_future()).await;
    bytes(&status.ok()?.ok()?)
}

/// Returns the cache size that a server reports, in bytes.
fn bytes(status: &Document) -> Option<i64> {
    let cache = status.get_document("wiredTiger").and_then(|engine| engine.get_document("cache")).ok()?;
    integer(&RawDocumentBuf::try_from(cache).ok()?, "maximum bytes configured")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_the_cache_is_read_whatever_its_type_of_number() {
        let of = |cache: Document| bytes(&doc! { "wiredTiger": { "cache": cache } });
        assert_eq!(of(doc! { "maximum bytes configured": 268_435_456_i64 }), Some(268_435_456));
        assert_eq!(of(doc! { "maximum bytes configured": 268_435_456.0 }), Some(268_435_456));
        assert_eq!(of(doc! {}), None);
        assert_eq!(bytes(&doc! { "ok": 1 }), None, "as a mongos answers");
    }
}
