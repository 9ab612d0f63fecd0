//! The cases of the suite of streams, grouped by what they are about.

pub mod appending;
pub mod durable;
pub mod following;
pub mod once_per_event;
pub mod positions;
pub mod reading;
