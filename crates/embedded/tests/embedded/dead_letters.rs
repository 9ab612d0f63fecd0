//! The suite of dead letters, on a disk in memory and on a real one.

use crate::conformance::Embedded;
use crate::stores::roomy_segments;

mod memory {
    use super::*;
    annals_conformance::dead_letters!(Embedded::in_memory(roomy_segments()));
}

mod real_disk {
    use super::*;
    annals_conformance::dead_letters!(Embedded::in_a_folder(roomy_segments()));
}
