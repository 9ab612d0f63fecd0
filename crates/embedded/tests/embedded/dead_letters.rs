//! The suite of dead letters, on a disk in memory and on a real one; and more letters than are cheap on every store.

use annals_conformance::dead_letters::cases;

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

#[test]
fn more_than_a_thousand_open_letters_are_critical() {
    let subject = Embedded::in_memory(roomy_segments());
    annals_conformance::run(subject, cases::acting::more_than_a_thousand_open_letters_are_critical);
}
