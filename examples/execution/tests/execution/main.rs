//! The service as its users meet it: programs are submitted over HTTP, the log tells what became of them, and the process is killed.
#![cfg(target_os = "linux")]

mod endings;
mod folder;
mod killed;
mod machine;
mod restart;
mod service;
mod several_processes;
mod web;
