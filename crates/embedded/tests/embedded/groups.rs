//! The suites of topics and consumer groups, on a disk in memory and on a real one.

use crate::conformance::Embedded;
use crate::stores::roomy_segments;

mod memory {
    use super::*;

    mod topics {
        use super::*;
        annals_conformance::broker!(Embedded::in_memory(roomy_segments()));
    }

    annals_conformance::groups!(Embedded::in_memory(roomy_segments()));
}

mod real_disk {
    use super::*;

    mod topics {
        use super::*;
        annals_conformance::broker!(Embedded::in_a_folder(roomy_segments()));
    }

    annals_conformance::groups!(Embedded::in_a_folder(roomy_segments()));
}
