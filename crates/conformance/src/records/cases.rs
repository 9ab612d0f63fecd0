//! The cases of records, grouped by subject.

pub mod batches;
pub mod changing;
pub mod durable;
pub mod expiring;
pub mod feed;
pub mod fields;
pub mod finding;
pub mod grouping;
pub mod indexes;
pub mod texts;
