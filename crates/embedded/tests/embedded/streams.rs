//! Streams from outside: the suite of their port, a model, every fault a disk can have, and what a restore makes of them.

mod battery;
mod conformance;
mod model;
mod restored;
#[cfg(feature = "seeded-bugs")]
mod seeded_bugs;
