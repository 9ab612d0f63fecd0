//! The cases, by subject.

pub mod acting;
pub mod attempts;
pub mod dying;
pub mod gathering;
pub mod listing;
pub mod managing;
pub mod ordering;
pub mod owning;
pub mod processes;
pub mod processing;
pub mod receiving;
pub mod selecting;
