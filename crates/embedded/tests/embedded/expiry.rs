//! The store's own deletion of expired documents, at work while events are archived and replayed.

use std::time::Duration;

use annals_conformance::archive::cases::expiring;
use annals_embedded::Options;

use crate::conformance::Embedded;
use crate::stores::roomy_segments;

#[test]
fn the_store_deletes_archived_events_alone_and_a_replay_that_runs_meanwhile_ends() {
    let options = Options { expiry_every: Duration::from_millis(10), ..roomy_segments() };
    annals_conformance::run(
        Embedded::in_memory(options),
        expiring::a_store_deletes_archived_events_alone_and_a_replay_that_runs_meanwhile_ends,
    );
}
