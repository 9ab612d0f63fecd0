//! The stored documents and collections: those of Wow's Mongo extension for commits, those of the Dolittle Runtime for the log, and the
//! few that Annals adds.

pub(crate) mod adopted;
pub(crate) mod block;
pub(crate) mod commit;
pub(crate) mod creation;
pub(crate) mod entry;
pub(crate) mod event;
pub(crate) mod fields;
pub(crate) mod foreign;
pub(crate) mod guid;
pub(crate) mod index;
pub(crate) mod mapping;
pub(crate) mod names;
pub(crate) mod owner;
pub(crate) mod prepare;
pub(crate) mod received;
pub(crate) mod register;
pub(crate) mod schema;
pub(crate) mod stream;
pub(crate) mod writer;
