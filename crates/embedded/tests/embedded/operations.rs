//! What an operator does: check, cut, back up, restore; on sound stores, on damaged ones, and on disks that fail meanwhile.

mod backup;
mod check;
mod floor;
mod forged;
mod generations;
mod keys;
mod lost;
pub mod map_samples;
mod maps;
pub mod packing;
#[cfg(feature = "seeded-bugs")]
mod reindex;
mod repair;
pub mod samples;
#[cfg(feature = "seeded-bugs")]
mod seeded_bugs;
mod swapped;
