//! The embedded store: the event log on a disk or in memory, with nothing to install. It is a crate of its own because it is the only
//! one with a format on disk.

pub mod disk;
