//! The cases.

pub mod changing;
pub mod folding;
pub mod operating;
pub mod processes;
pub mod restarting;
pub mod waiting;
