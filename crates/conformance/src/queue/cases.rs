//! The cases, by subject.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

pub mod capping;
pub mod defining;
pub mod entries;
pub mod leasing;
pub mod ordering;
pub mod processes;
