//! Indexes: they make queries fast, keep records unique, let them expire, or find words.

mod form;
mod language;

use bson::raw::{RawArray, RawDocument};
use bson::{Bson, Document, RawBsonRef};
use serde::{Deserialize, Serialize};

use crate::condition::valid_path;
use crate::order::{Direction, encoded, invert};
use crate::{Condition, limits};

pub use form::IndexForm;
pub use language::TextLanguage;

/// An index of a collection. Each kind has only the options that apply to it; [`IndexForm`] is the common serialized form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "IndexForm", into = "IndexForm")]
pub enum Index {
    /// Orders records by fields.
    Ordered(OrderedIndex),
    /// Finds records by the value of a field.
    Hashed(HashedIndex),
    /// Finds records by the words in their fields.
    Text(TextIndex),
}

/// An index that orders records by fields. It serves equality, ranges and sorting.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderedIndex {
    /// Its name, exactly as a backend calls it.
    pub name: String,
    /// The paths it orders by, the most significant first.
    pub fields: Vec<(String, Direction)>,
    /// No two records have the same entry.
    pub unique: bool,
    /// Records that have none of the fields have no entry.
    pub sparse: bool,
    /// If set, only records that match this condition have entries.
    pub partial: Option<Condition>,
    /// If set, records are deleted this many seconds after the date in the index's only field.
    pub expires_after_seconds: Option<u32>,
}

/// An index for equality only. Backends may treat it differently: on MongoDB it is a hashed index, which holds no arrays.
#[derive(Debug, Clone, PartialEq)]
pub struct HashedIndex {
    /// Its name, exactly as a backend calls it.
    pub name: String,
    /// The indexed path.
    pub path: String,
    /// The direction of its entries on a backend that keeps them in order.
    pub direction: Direction,
    /// Records without the field have no entry.
    pub sparse: bool,
    /// If set, only records that match this condition have entries.
    pub partial: Option<Condition>,
}

/// An index of the words in fields, for `MATCH`. A collection has at most one.
#[derive(Debug, Clone, PartialEq)]
pub struct TextIndex {
    /// Its name, exactly as a backend calls it.
    pub name: String,
    /// The paths whose texts it covers.
    pub paths: Vec<String>,
    /// How words are normalised before they are compared.
    pub language: TextLanguage,
    /// The field from which MongoDB takes the language of a document, for software that expects one. If absent, no field overrides the
    /// language.
    pub language_override: Option<String>,
}

impl Index {
    /// Returns an index on these paths, named as MongoDB names it: `state_1_time_-1`.
    pub fn ordered<'a>(fields: impl IntoIterator<Item = (&'a str, Direction)>) -> OrderedIndex {
        let fields: Vec<_> = fields.into_iter().map(|(path, direction)| (path.to_owned(), direction)).collect();
        let part = |(path, direction): &(String, Direction)| match direction {
            Direction::Ascending => format!("{path}_1"),
            Direction::Descending => format!("{path}_-1"),
        };
        let name = fields.iter().map(part).collect::<Vec<_>>().join("_");
        OrderedIndex { name, fields, unique: false, sparse: false, partial: None, expires_after_seconds: None }
    }

    /// Returns an ascending index on one path.
    pub fn on(path: &str) -> OrderedIndex {
        Self::ordered([(path, Direction::Ascending)])
    }

    /// Returns an index on one path for equality only, named as MongoDB names it: `state_hashed`.
    pub fn hashed(path: &str) -> HashedIndex {
        let (name, path) = (format!("{path}_hashed"), path.to_owned());
        HashedIndex { name, path, direction: Direction::Ascending, sparse: false, partial: None }
    }

    /// Returns an index of the words in these fields, named as MongoDB names it: `title_text_body_text`.
    pub fn text<'a>(paths: impl IntoIterator<Item = &'a str>) -> TextIndex {
        let paths: Vec<_> = paths.into_iter().map(str::to_owned).collect();
        let name = paths.iter().map(|path| format!("{path}_text")).collect::<Vec<_>>().join("_");
        TextIndex { name, paths, language: TextLanguage::None, language_override: None }
    }

    /// Returns its name, exactly as a backend calls it.
    pub fn name(&self) -> &str {
        match self {
            Self::Ordered(index) => &index.name,
            Self::Hashed(index) => &index.name,
            Self::Text(index) => &index.name,
        }
    }

    /// Returns the paths that it covers, each with the direction of its entries. Text indexes have no direction and report ascending.
    pub fn fields(&self) -> Vec<(&str, Direction)> {
        match self {
            Self::Ordered(index) => index.fields.iter().map(|(path, direction)| (path.as_str(), *direction)).collect(),
            Self::Hashed(index) => vec![(&index.path, index.direction)],
            Self::Text(index) => index.paths.iter().map(|path| (path.as_str(), Direction::Ascending)).collect(),
        }
    }

    /// Returns whether two records cannot have the same entry.
    pub fn is_unique(&self) -> bool {
        matches!(self, Self::Ordered(index) if index.unique)
    }

    /// Returns whether records that have none of its fields have no entry.
    pub fn is_sparse(&self) -> bool {
        match self {
            Self::Ordered(index) => index.sparse,
            Self::Hashed(index) => index.sparse,
            Self::Text(_) => false,
        }
    }

    /// Returns the condition that records must match to have entries, if there is one.
    pub fn partial(&self) -> Option<&Condition> {
        match self {
            Self::Ordered(index) => index.partial.as_ref(),
            Self::Hashed(index) => index.partial.as_ref(),
            Self::Text(_) => None,
        }
    }

    /// Returns the number of seconds after which a record expires, counted from the date in the index's field; `None` if records do not
    /// expire.
    pub fn expires_after_seconds(&self) -> Option<u32> {
        match self {
            Self::Ordered(index) => index.expires_after_seconds,
            Self::Hashed(_) | Self::Text(_) => None,
        }
    }

    /// Returns the text index, if it is one.
    pub fn as_text(&self) -> Option<&TextIndex> {
        match self {
            Self::Text(index) => Some(index),
            Self::Ordered(_) | Self::Hashed(_) => None,
        }
    }

    /// Returns the fields of one index entry of a document with their values, for error messages. If the only field is an array, the value
    /// is the element that the entry stands for. Entries are those of [`document_keys`](crate::order::document_keys).
    pub fn readable_entry(&self, document: &RawDocument, entry: &[u8]) -> Document {
        let fields = self.fields();
        let value = |path: &str, direction| {
            let value = follow(document, path)?;
            let whole = Bson::try_from(value).ok()?;
            match (value, fields.len()) {
                (RawBsonRef::Array(array), 1) => Some(element(array, direction, entry).unwrap_or(whole)),
                _ => Some(whole),
            }
        };
        let value = |(path, direction): &(&str, _)| ((*path).to_owned(), value(path, *direction).unwrap_or(Bson::Null));
        fields.iter().map(value).collect()
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let (name, fields) = (self.name(), self.fields());
        if fields.is_empty() || fields.len() > limits::INDEX_FIELDS_MAX {
            return Err(format!("has {} fields; name 1 to {}", fields.len(), limits::INDEX_FIELDS_MAX));
        }
        if name.is_empty() || name.len() > limits::PATH_BYTES_MAX || name.contains('\0') {
            return Err(format!("needs a name of 1 to {} bytes without NUL", limits::PATH_BYTES_MAX));
        }
        let mut paths = std::collections::HashSet::new();
        for (path, _) in &fields {
            key_path(path)?;
            if !paths.insert(path) {
                return Err(format!("has the field {path:?} twice"));
            }
        }
        if self.expires_after_seconds().is_some() && fields.len() > 1 {
            return Err("expires, so it can have one field only: the date".to_owned());
        }
        if let Self::Text(index) = self {
            index.check()?;
        }
        let judged = |condition: &Condition| condition.validate().and_then(|()| condition.judgeable());
        self.partial().map_or(Ok(()), |condition| judged(condition).map_err(|error| error.to_string()))
    }
}

impl OrderedIndex {
    /// Sets its name.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Refuses a second record with the same entry.
    pub fn unique(self) -> Self {
        Self { unique: true, ..self }
    }

    /// Leaves out records that have none of its fields.
    pub fn sparse(self) -> Self {
        Self { sparse: true, ..self }
    }

    /// Leaves out records that do not match this condition.
    pub fn partial(self, condition: Condition) -> Self {
        Self { partial: Some(condition), ..self }
    }

    /// Makes records expire this many seconds after the date in its field.
    pub fn expires_after_seconds(self, seconds: u32) -> Self {
        Self { expires_after_seconds: Some(seconds), ..self }
    }
}

impl HashedIndex {
    /// Sets its name.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Leaves out records without its field.
    pub fn sparse(self) -> Self {
        Self { sparse: true, ..self }
    }

    /// Leaves out records that do not match this condition.
    pub fn partial(self, condition: Condition) -> Self {
        Self { partial: Some(condition), ..self }
    }
}

impl TextIndex {
    /// Sets its name.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Compares words by their stems in this language, and ignores its stop words.
    pub fn language(self, language: TextLanguage) -> Self {
        Self { language, ..self }
    }

    fn check(&self) -> Result<(), String> {
        let kept = |path: &&String| matches!(path.split('.').next(), Some("_fts" | "_ftsx"));
        match self.paths.iter().find(kept) {
            Some(path) => Err(format!("has the field {path:?}, a name that MongoDB reserves for text indexes")),
            None => Ok(()),
        }
    }
}

impl From<OrderedIndex> for Index {
    fn from(index: OrderedIndex) -> Self {
        Self::Ordered(index)
    }
}

impl From<HashedIndex> for Index {
    fn from(index: HashedIndex) -> Self {
        Self::Hashed(index)
    }
}

impl From<TextIndex> for Index {
    fn from(index: TextIndex) -> Self {
        Self::Text(index)
    }
}

fn follow<'a>(document: &'a RawDocument, path: &str) -> Option<RawBsonRef<'a>> {
    match path.split_once('.') {
        None => document.get(path).ok()?,
        Some((name, rest)) => match document.get(name).ok()?? {
            RawBsonRef::Document(inner) => follow(inner, rest),
            other => Some(other),
        },
    }
}

fn element(array: &RawArray, direction: Direction, entry: &[u8]) -> Option<Bson> {
    let key = |value| {
        let mut key = encoded(value);
        if direction == Direction::Descending {
            invert(&mut key);
        }
        key
    };
    let found = array.into_iter().flatten().find(|value| key(*value) == entry)?;
    Bson::try_from(found).ok()
}

/// Checks that records can be ordered by this path.
pub(super) fn key_path(path: &str) -> Result<(), String> {
    valid_path(path).map_err(|message| format!("field {path:?} {message}"))?;
    let is_place = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    if path.split('.').any(is_place) {
        return Err(format!("field {path:?} names an array element by its index; records are ordered by fields"));
    }
    Ok(())
}
