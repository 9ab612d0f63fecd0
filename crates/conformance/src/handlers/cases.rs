//! The cases.

pub mod defining;
pub mod delivering;
pub mod failing;
pub mod in_process;
pub mod processes;
pub mod restarting;
pub mod waiting;
