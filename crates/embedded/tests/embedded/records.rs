//! Records: the suite of their port, a model, and every fault a disk can have.

mod battery;
mod conformance;
mod limits;
mod model;
#[cfg(feature = "seeded-bugs")]
mod seeded_bugs;
mod words;
