//! Declarations of collections.

use super::{Index, TextIndex};
use crate::{Code, Invalid, RecordError, limits};

/// A collection for records of one type: a name and indexes. Documents need no declaration, since a type's fields are stored under their
/// serde names.
#[derive(Debug, Clone, PartialEq)]
pub struct Collection {
    /// Its name, exactly as a backend calls it.
    pub name: String,
    /// Its indexes.
    pub indexes: Vec<Index>,
    /// Whether its changes are recorded and can be followed. A collection that was once declared with a feed keeps it.
    pub feed: bool,
}

impl Collection {
    /// Returns a collection without indexes, whose records are found by `_id`.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), indexes: Vec::new(), feed: false }
    }

    /// Gives the collection a feed of its changes.
    pub fn with_feed(self) -> Self {
        Self { feed: true, ..self }
    }

    /// Adds an index.
    pub fn index(mut self, index: impl Into<Index>) -> Self {
        self.indexes.push(index.into());
        self
    }

    /// Returns whether this is a valid name of a collection.
    pub fn can_be_called(name: &str) -> bool {
        let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
        (1..=limits::NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(fine)
    }

    /// Checks everything that can be checked without a store.
    ///
    /// # Errors
    /// `invalid_collection`, with the path of the index in question.
    pub fn validate(&self) -> Result<(), Invalid> {
        let invalid = |path: &str, message: String| Err(Invalid::new(Code::InvalidCollection, path, message));
        if !Self::can_be_called(&self.name) {
            let most = limits::NAME_BYTES_MAX;
            return invalid("name", format!("{:?} is not 1 to {most} bytes of A-Z a-z 0-9 _ . -", self.name));
        }
        let mut names = std::collections::HashSet::from(["_id_"]);
        for (n, index) in self.indexes.iter().enumerate() {
            if let Err(message) = index.check() {
                return invalid(&index_path(n), message);
            }
            if !names.insert(index.name()) {
                return invalid(&index_path(n), format!("{:?} is declared twice, or is _id's own", index.name()));
            }
        }
        match self.indexes.iter().enumerate().filter(|(_, index)| index.as_text().is_some()).nth(1) {
            Some((n, _)) => invalid(&index_path(n), format!("is a second text index; {ONE_TEXT_INDEX}")),
            None => Ok(()),
        }
    }

    /// Returns the text index, which `MATCH` uses.
    pub fn text_index(&self) -> Option<&TextIndex> {
        self.indexes.iter().find_map(Index::as_text)
    }

    /// Checks that this declaration, together with the known indexes, leaves the collection with at most one text index.
    ///
    /// # Errors
    /// [`RecordError::IndexConflict`].
    pub fn one_text_index<'k>(&self, known: impl IntoIterator<Item = &'k Index>) -> Result<(), RecordError> {
        let Some(declared) = self.text_index() else { return Ok(()) };
        match known.into_iter().filter_map(Index::as_text).find(|known| known.name != declared.name) {
            None => Ok(()),
            Some(known) => Err(RecordError::IndexConflict {
                collection: self.name.clone(),
                index: declared.name.clone(),
                message: format!(
                    "cannot be created beside {}: {ONE_TEXT_INDEX}. Declared indexes are kept, so use another collection for it",
                    known.name
                ),
            }),
        }
    }
}

/// Returns the path of an index in a declaration.
pub fn index_path(place: usize) -> String {
    format!("indexes[{place}]")
}

const ONE_TEXT_INDEX: &str = "a collection has at most one text index; give it all fields to search";
