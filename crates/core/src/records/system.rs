//! Names that are not for records of one's own.

/// Collections that belong to features of Annals and to the layouts it keeps, so that nobody writes to them from outside by accident:
/// over HTTP, and on the command line, they can be read and neither declared nor written to. Features go through the port, which lets
/// them.
///
/// A feature that may choose its names lets them begin with `_`, and needs no line here. One whose names are those of a layout that
/// other software reads adds them: on MongoDB they are collections of the same database. `*` stands for any characters, at the
/// beginning or the end.
pub const SYSTEM_COLLECTIONS: &[&str] = &[
    // Annals, and MongoDB itself.
    "_*",
    "annals*",
    "system.*",
    // Wow: commits, snapshots and prepare keys.
    "*_event_stream",
    "*_snapshot",
    "prepare_*",
    "wow_database_metadata",
    // Dolittle Runtime: the log, streams, and who has handled what.
    "event-log*",
    "aggregates",
    "metadata",
    "public-stream-*",
    "sequencer-held",
    "stream-*",
    "x-*",
    // Integr8sCode: dead letters; the browse view, its builds and its archive; replays; events of partners; sagas.
    "dlq_messages",
    "dlq_messages_archive",
    "events",
    "events-*",
    "events_archive",
    "partner_events",
    "partner_events_archive",
    "sagas",
    "replay_sessions",
];

/// Whether this collection is one of [`SYSTEM_COLLECTIONS`]. Case does not make a name another one.
pub fn is_system_collection(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SYSTEM_COLLECTIONS.iter().any(|known| match (known.strip_suffix('*'), known.strip_prefix('*')) {
        (Some(beginning), _) => name.starts_with(beginning),
        (None, Some(end)) => name.ends_with(end),
        (None, None) => name == *known,
    })
}

/// Whether the records of this collection are secrets of Annals, which are shown to nobody.
pub fn is_secret_collection(name: &str) -> bool {
    let secret = [crate::horizon::SUBSCRIPTION_CREDENTIALS, crate::partners::PARTNER_SECRETS];
    secret.iter().any(|known| name.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_features_and_layouts_have_for_themselves_is_known() {
        for name in ["_processors", "order_event_stream", "Event-Log", "event-log-commits", "stream-7", "events", "x-1"]
        {
            assert!(is_system_collection(name), "{name}");
        }
        for name in ["orders", "my_events", "event_streams", "things", "snapshots", "streams", "o_"] {
            assert!(!is_system_collection(name), "{name}");
        }
    }
}
