//! The adapter against a real Redis, which `cargo xtask test` starts, and against servers that tests kill.

mod faults;
mod redis_process;
mod suite;
