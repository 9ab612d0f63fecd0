//! The suite of partner events, on a disk in memory and on a real one.

use crate::conformance::Embedded;
use crate::stores::roomy_segments;

/// What has expired is looked for often, so that no case waits for it.
fn sweeping() -> annals_embedded::Options {
    annals_embedded::Options { expiry_every: std::time::Duration::from_millis(20), ..roomy_segments() }
}

mod memory {
    use super::*;
    annals_conformance::partners!(Embedded::in_memory(sweeping()));
}

mod real_disk {
    use super::*;
    annals_conformance::partners!(Embedded::in_a_folder(sweeping()));
}
