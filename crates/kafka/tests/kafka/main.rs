//! The adapter and the relay against a real Kafka, which `cargo xtask test` starts, and against brokers that tests kill.

mod broker_process;
mod consuming;
mod consuming_faults;
mod dying;
mod groups;
mod guards;
mod letters;
mod publishing;
mod relaying;
mod relaying_faults;
mod secured;
mod suite;
mod support;
mod topics;
