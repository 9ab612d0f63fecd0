//! The cases.

pub mod filing;
pub mod holding;
pub mod removing;
pub mod retaining;
