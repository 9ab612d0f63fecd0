//! The embedded store from outside: the suite of its port, a model, and every fault a disk can have.

mod aggregates;
mod battery;
mod conformance;
mod damage;
mod dead_letters;
mod faulty_disk;
mod filters;
mod fixtures;
mod full;
mod groups;
mod handlers;
mod horizon;
mod lives;
mod locks;
mod model;
mod operations;
mod prepare;
mod projections;
mod receiving;
mod records;
mod refusals;
mod reopening;
#[cfg(feature = "seeded-bugs")]
mod seeded_bugs;
mod stores;
mod streams;
mod types;
