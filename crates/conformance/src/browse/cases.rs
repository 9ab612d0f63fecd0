//! The cases.

pub mod finding;
pub mod viewing;
