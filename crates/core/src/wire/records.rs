//! Records over HTTP: one shape for each request and answer, as BSON, and as JSON derived from it by one rule.
//!
//! A JSON body is converted to BSON first, so one parser serves both and refuses both in the same way. An answer is built as BSON, and
//! written as relaxed Extended JSON for clients that do not accept BSON.

mod answer;
mod encoding;
mod extended;
mod read;
mod write;

pub use answer::{
    read_changes_page, read_collections, read_count, read_explained, read_group_page, read_numbers, read_page,
    read_record,
};
pub use encoding::Encoding;
pub(crate) use extended::extended;
pub use extended::{ExactJson, extended_value};
pub(crate) use read::{condition as condition_of, number as number_of, read_projection, read_sort};
pub use read::{read_changes, read_collection, read_condition, read_document, read_group, read_id, read_query};
pub use write::{
    change, changes_page, collection, collections, count, explained, group, group_page, numbers, page, record,
    write_changes, write_collection, write_condition, write_group, write_id, write_query,
};
pub(crate) use write::{write_projection, write_sort};

#[cfg(test)]
mod tests;
