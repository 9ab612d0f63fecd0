//! The keys of a document under some paths, by which it is indexed and sorted.

use bson::RawBsonRef;
use bson::raw::{RawArray, RawDocument, RawElement};
use serde::{Deserialize, Serialize};

use super::{TypeOrder, encode};

/// The direction of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Direction {
    /// Lowest first.
    #[serde(rename = "ASC")]
    Ascending,
    /// Highest first.
    #[serde(rename = "DESC")]
    Descending,
}

/// Two of the paths lead into different arrays of the document, so it has no key: every pair of elements would be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("two of its fields lie in different arrays")]
pub struct ParallelArrays;

/// Inverts an encoding, which reverses its order.
pub fn invert(encoding: &mut [u8]) {
    encoding.iter_mut().for_each(|byte| *byte = !*byte);
}

/// Returns the keys of a document under these paths: one, or one per element if a path leads through an array or to one. A key is the
/// concatenation of the encodings of its values, those of descending paths inverted. A missing value counts as null, and an array without
/// elements as one undefined element. A number in a path is a name like any other: only conditions address elements by index. The second
/// result is the number of paths that lead to nothing at all.
///
/// # Errors
/// [`ParallelArrays`].
pub fn document_keys(
    document: &RawDocument,
    paths: &[(&str, Direction)],
) -> Result<(Vec<Vec<u8>>, usize), ParallelArrays> {
    keys_of(paths, paths.iter().map(|(path, _)| Field::Open(Some(document), path)).collect())
}

/// The fields of a document, read once for many paths.
pub struct Fields<'a> {
    document: &'a RawDocument,
    elements: Vec<RawElement<'a>>,
}

impl<'a> Fields<'a> {
    /// Reads the fields of this document.
    pub fn of(document: &'a RawDocument) -> Self {
        Self { document, elements: document.iter_elements().map_while(Result::ok).collect() }
    }

    /// Returns the document.
    pub fn document(&self) -> &'a RawDocument {
        self.document
    }

    /// Returns the keys of the document under these paths, as [`document_keys`] does.
    ///
    /// # Errors
    /// [`ParallelArrays`].
    pub fn keys(&self, paths: &[(&str, Direction)]) -> Result<(Vec<Vec<u8>>, usize), ParallelArrays> {
        keys_of(paths, paths.iter().map(|(path, _)| self.at(path)).collect())
    }

    /// Returns whether a path leads to the same value in another document, so that both have the same keys under it. It may return false if
    /// only the type of a number differs.
    pub fn has_same(&self, other: &Fields<'_>, path: &str) -> bool {
        self.at(path) == other.at(path)
    }

    fn at<'p>(&'p self, path: &'p str) -> Field<'p> {
        follow_from(path, |name| self.elements.iter().find(|element| element.key().as_str() == name)?.value().ok())
    }
}

/// Returns the keys under these paths, each of which has been followed so far.
fn keys_of(paths: &[(&str, Direction)], fields: Vec<Field<'_>>) -> Result<(Vec<Vec<u8>>, usize), ParallelArrays> {
    let mut found = Found { paths, keys: Vec::new(), missing_of_all: usize::MAX };
    found.expand(fields)?;
    found.keys.sort_unstable();
    found.keys.dedup();
    Ok((found.keys, found.missing_of_all))
}

/// The point up to which one path has been followed.
#[derive(Clone, PartialEq)]
enum Field<'a> {
    /// This document (none if it is missing), with the rest of the path.
    Open(Option<&'a RawDocument>, &'a str),
    /// This array, with the rest of the path; empty if the path leads to the array.
    InArray(&'a RawArray, &'a str),
    /// Its value.
    Value(RawBsonRef<'a>),
    /// Nothing: the document has no such path.
    Missing,
}

struct Found<'p> {
    paths: &'p [(&'p str, Direction)],
    keys: Vec<Vec<u8>>,
    missing_of_all: usize,
}

impl Found<'_> {
    /// Follows all paths to an array or to their ends. If there is an array, continues with each of its elements.
    fn expand(&mut self, mut fields: Vec<Field<'_>>) -> Result<(), ParallelArrays> {
        for field in &mut fields {
            if let Field::Open(document, path) = field {
                *field = follow(*document, path);
            }
        }
        let mut arrays = fields.iter().filter_map(|field| match field {
            Field::InArray(array, _) => Some(*array),
            _ => None,
        });
        let Some(array) = arrays.next() else {
            self.add(&fields);
            return Ok(());
        };
        if arrays.any(|other| !std::ptr::eq(other.as_bytes(), array.as_bytes())) {
            return Err(ParallelArrays);
        }
        let mut elements = array.into_iter().flatten().peekable();
        if elements.peek().is_none() {
            return self.expand(fields.into_iter().map(|field| element(field, None)).collect());
        }
        for value in elements {
            self.expand(fields.iter().cloned().map(|field| element(field, Some(value))).collect())?;
        }
        Ok(())
    }

    fn add(&mut self, fields: &[Field<'_>]) {
        let mut key = Vec::with_capacity(16 * fields.len());
        let mut missing = 0;
        for (field, (_, direction)) in fields.iter().zip(self.paths) {
            let start = key.len();
            match field {
                Field::Value(value) => encode(*value, &mut key),
                _ => {
                    missing += 1;
                    key.push(TypeOrder::Null as u8);
                }
            }
            if *direction == Direction::Descending {
                invert(&mut key[start..]);
            }
        }
        self.missing_of_all = self.missing_of_all.min(missing);
        self.keys.push(key);
    }
}

/// Follows a path through documents.
fn follow<'a>(document: Option<&'a RawDocument>, path: &'a str) -> Field<'a> {
    let Some(document) = document else { return Field::Missing };
    follow_from(path, |name| document.get(name).ok().flatten())
}

/// Follows a path from a document whose fields `get` returns.
fn follow_from<'a>(path: &'a str, get: impl FnOnce(&str) -> Option<RawBsonRef<'a>>) -> Field<'a> {
    let (name, rest) = path.split_once('.').unwrap_or((path, ""));
    match get(name) {
        None => Field::Missing,
        Some(RawBsonRef::Array(array)) => Field::InArray(array, rest),
        Some(value) if rest.is_empty() => Field::Value(value),
        Some(RawBsonRef::Document(inner)) => follow(Some(inner), rest),
        Some(_) => Field::Missing,
    }
}

/// Continues with one element of the array; none represents an array without elements.
fn element<'a>(field: Field<'a>, value: Option<RawBsonRef<'a>>) -> Field<'a> {
    match field {
        Field::InArray(_, "") => Field::Value(value.unwrap_or(RawBsonRef::Undefined)),
        Field::InArray(_, rest) => match value {
            Some(RawBsonRef::Document(document)) => Field::Open(Some(document), rest),
            _ => Field::Missing,
        },
        other => other,
    }
}
