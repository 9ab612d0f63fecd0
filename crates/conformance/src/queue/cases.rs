//! The cases, by what they are about.

pub mod capping;
pub mod defining;
pub mod entries;
pub mod leasing;
pub mod ordering;
pub mod processes;
