//! The service as its users meet it: programs are submitted over HTTP, the log tells what became of them, and processes are killed.
#![cfg(target_os = "linux")]

mod clock;
mod endings;
mod faults;
mod folder;
mod killed;
mod languages;
mod machine;
mod restart;
mod roles;
mod saga;
mod service;
mod several_processes;
mod streams;
mod web;
mod with_mongodb_faults;
mod with_mongodb_roles;
mod with_redis_queue;
mod workflow;
