//! The suite of the port, on a disk in memory and on a real one.

use crate::conformance::Embedded;
use crate::stores::{roomy_segments, tiny_segments};

mod memory {
    use super::*;
    annals_conformance::streams!(Embedded::in_memory(roomy_segments()));
}

mod memory_with_tiny_segments {
    use super::*;
    annals_conformance::streams!(Embedded::in_memory(tiny_segments()));
}

mod real_disk {
    use super::*;
    annals_conformance::streams!(Embedded::in_a_folder(roomy_segments()));
}
