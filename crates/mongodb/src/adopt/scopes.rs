//! The UUIDs in the logs of scopes, which a Dolittle Runtime has received from other microservices. These logs are read in place, with the
//! names that an adoption stored.

use mongodb::Database;
use mongodb::bson::{RawDocumentBuf, doc};
use uuid::Uuid;

use super::events::Uuids;
use crate::layout::fields::integer;
use crate::layout::guid::uuid;
use crate::layout::mapping::Kind;
use crate::layout::names::EVENT_LOG;

/// Counts the events of each type, and of each aggregate, in all logs of scopes.
pub(super) async fn look(database: &Database, there: &[String]) -> mongodb::error::Result<Uuids> {
    let mut uuids = Uuids::new();
    for log in there.iter().filter(|name| is_log_of_scope(name)) {
        let applied = doc! { "Aggregate.WasAppliedByAggregate": true };
        for (kind, matched, by) in
            [(Kind::Event, doc! {}, "$Metadata.TypeId"), (Kind::Aggregate, applied, "$Aggregate.TypeId")]
        {
            let count = doc! { "$group": { "_id": by, "events": { "$sum": 1_i64 } } };
            let events = database.collection::<RawDocumentBuf>(log);
            let found = events.aggregate([doc! { "$match": matched }, count]).with_type::<RawDocumentBuf>();
            let mut found = found.allow_disk_use(true).await?;
            while found.advance().await? {
                let group = found.current();
                // An event without a UUID cannot be read; its reader reports that.
                let Some(uuid) = uuid(group, "_id") else { continue };
                let count = integer(group, "events").and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
                *uuids.entry((kind, uuid)).or_default() += count;
            }
        }
    }
    Ok(uuids)
}

/// Returns whether a collection is named `x-<scope>-event-log`.
fn is_log_of_scope(collection: &str) -> bool {
    let scope = collection.strip_prefix("x-").and_then(|rest| rest.strip_suffix(EVENT_LOG)?.strip_suffix('-'));
    scope.is_some_and(|scope| Uuid::try_parse(scope).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::names::{of_scope, scope_uuid};

    #[test]
    fn a_log_of_a_scope_is_told_by_its_name() {
        assert!(is_log_of_scope(&of_scope(scope_uuid("inbox"), EVENT_LOG)));
        for other in [EVENT_LOG, "x-inbox-event-log", "x--event-log", &of_scope(scope_uuid("inbox"), "streams")] {
            assert!(!is_log_of_scope(other), "{other}");
        }
    }
}
