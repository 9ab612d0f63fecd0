//! The embedded store from outside: the suite of its port, a model, and every fault a disk can have.

mod aggregates;
mod battery;
mod browse;
mod conformance;
mod damage;
mod dead_letters;
mod expiry;
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
mod pages;
mod partners;
mod prepare;
mod projections;
mod queue;
mod receiving;
mod records;
mod refusals;
mod reopening;
mod sagas;
#[cfg(feature = "seeded-bugs")]
mod seeded_bugs;
mod stores;
mod streams;
mod types;
mod with_python;
