//! The cases.

pub mod choosing;
pub mod defining;
pub mod delivering;
pub mod failing;
pub mod in_process;
pub mod operating;
pub mod processes;
pub mod restarting;
pub mod waiting;
