//! The suite of event types, on a disk in memory and on a real one; and every place at which a process can die while it registers.

use crate::conformance::Embedded;
use crate::stores::roomy_segments;

mod memory {
    use super::*;
    annals_conformance::types!(Embedded::in_memory(roomy_segments()));
}

mod real_disk {
    use super::*;
    annals_conformance::types!(Embedded::in_a_folder(roomy_segments()));
}
