//! What follows a log and what stands on one, on the real store in memory.

mod aggregates;
mod archive_files;
mod consumers;
mod letters;
mod relay;
mod topics;
