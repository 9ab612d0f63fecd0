//! The suite of the port, on a disk in memory and on a real one.

use std::time::Duration;

use annals_embedded::Options;

use crate::conformance::Embedded;
use crate::stores::roomy_segments;

/// Looks for expired records so often that no test waits long.
fn watchful() -> Options {
    Options { expiry_every: Duration::from_millis(10), ..roomy_segments() }
}

mod memory {
    use super::*;
    annals_conformance::records!(Embedded::in_memory(watchful()));
    annals_conformance::snapshots!(Embedded::in_memory(watchful()));
    annals_conformance::queries!(Embedded::in_memory(watchful()));
}

mod real_disk {
    use super::*;
    annals_conformance::records!(Embedded::in_a_folder(watchful()));
    annals_conformance::snapshots!(Embedded::in_a_folder(watchful()));
    annals_conformance::queries!(Embedded::in_a_folder(watchful()));
}
