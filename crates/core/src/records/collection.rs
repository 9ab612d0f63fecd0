//! Declarations of collections.

use super::{Index, TextIndex};
use crate::{Code, Invalid, RecordError, limits};

/// Where records of one type are kept: a name, and indexes. Documents need no declaration: the names of a type's fields are its serde
/// names.
#[derive(Debug, Clone, PartialEq)]
pub struct Collection {
    /// Its name, exactly as a backend calls it.
    pub name: String,
    /// Its indexes.
    pub indexes: Vec<Index>,
    /// Its changes are noted and can be followed. Declared once with a feed, a collection keeps it.
    pub feed: bool,
}

impl Collection {
    /// A collection without indexes; records are found by `_id`.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), indexes: Vec::new(), feed: false }
    }

    /// Asks for a feed of its changes.
    pub fn with_feed(self) -> Self {
        Self { feed: true, ..self }
    }

    /// Adds an index.
    pub fn index(mut self, index: impl Into<Index>) -> Self {
        self.indexes.push(index.into());
        self
    }

    /// Whether a collection can have this name.
    pub fn can_be_called(name: &str) -> bool {
        let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
        (1..=limits::NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(fine)
    }

    /// Checks everything that can be checked without a store.
    ///
    /// # Errors
    /// `invalid_collection`, with the index it is about.
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

    /// The index by which `MATCH` looks.
    pub fn text_index(&self) -> Option<&TextIndex> {
        self.indexes.iter().find_map(Index::as_text)
    }

    /// Checks that what is declared, and was not before, leaves the collection with one text index at most.
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
                    "cannot be made beside {}: {ONE_TEXT_INDEX}. What is declared stays, so do that in another collection",
                    known.name
                ),
            }),
        }
    }
}

/// Where the index of this place stands in a declaration.
pub fn index_path(place: usize) -> String {
    format!("indexes[{place}]")
}

const ONE_TEXT_INDEX: &str = "a collection has one text index at most; give it all fields whose words are looked for";
