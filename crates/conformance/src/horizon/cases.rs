//! The cases, by subject.

pub mod consents;
pub mod dying;
pub mod network;
pub mod offering;
pub mod processes;
pub mod receiving;
pub mod subscribing;
