//! The cases.

pub mod answering;
pub mod attempts;
pub mod choosing;
pub mod defining;
pub mod delivering;
pub mod dying;
pub mod failing;
pub mod health;
pub mod idling;
pub mod in_process;
pub mod operating;
pub mod processes;
pub mod restarting;
pub mod spreading;
pub mod waiting;
