//! Collections that are reserved for Annals and for the layouts it shares with other software.

/// Collections that belong to features of Annals or to the layouts it keeps. So that nothing outside writes to them by accident, HTTP and
/// the command line allow reading them, but neither declaring nor writing. Features use the port, which does not restrict them.
///
/// A feature that is free to choose its names begins them with `_` and needs no entry here. A feature whose names belong to a layout that
/// other software reads adds them, since on MongoDB they are collections of the same database. `*` matches any characters, at the
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
    // Dolittle Runtime: the log, streams, and the progress of processors.
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

/// Returns whether this collection is one of [`SYSTEM_COLLECTIONS`], ignoring case.
pub fn is_system_collection(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SYSTEM_COLLECTIONS.iter().any(|known| match (known.strip_suffix('*'), known.strip_prefix('*')) {
        (Some(beginning), _) => name.starts_with(beginning),
        (None, Some(end)) => name.ends_with(end),
        (None, None) => name == *known,
    })
}

/// Returns whether the records of this collection hold secrets of Annals, so that they are never shown: credentials, and what the tokens of
/// replayed deliveries are made of.
pub fn is_secret_collection(name: &str) -> bool {
    let secret = [crate::horizon::SUBSCRIPTION_CREDENTIALS, crate::partners::PARTNER_SECRETS, crate::replays::INBOX];
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

    #[test]
    fn credentials_and_what_tokens_are_made_of_are_secret() {
        for name in ["annals-replay-inbox", "Annals-Replay-Inbox", crate::partners::PARTNER_SECRETS] {
            assert!(is_secret_collection(name), "{name}");
        }
        assert!(!is_secret_collection("annals-replay-files"));
    }
}
