//! The cases.

pub mod acting;
pub mod defining;
pub mod dying;
pub mod processes;
pub mod programs;
pub mod running;
pub mod timing;
