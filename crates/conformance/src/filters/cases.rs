//! The cases.

pub mod changing;
pub mod dying;
pub mod filling;
pub mod processes;
pub mod remote;
pub mod restarting;
