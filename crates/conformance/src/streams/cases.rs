//! The cases of streams, grouped by subject.

pub mod appending;
pub mod durable;
pub mod following;
pub mod once_per_event;
pub mod positions;
pub mod reading;
