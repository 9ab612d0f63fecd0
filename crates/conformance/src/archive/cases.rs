//! The cases.

pub mod dying;
pub mod expiring;
pub mod filing;
pub mod holding;
pub mod removing;
pub mod retaining;
