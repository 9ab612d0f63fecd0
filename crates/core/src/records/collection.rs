//! Declarations of collections and their indexes.

use bson::raw::{RawArray, RawDocument};
use bson::{Bson, Document, RawBsonRef};
use serde::{Deserialize, Serialize};

use crate::condition::valid_path;
use crate::order::{Direction, encoded, invert};
use crate::{Code, Condition, Invalid, RecordError, limits};

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

/// An index: what makes finding fast, keeps records unique, or lets them expire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Index {
    /// Its name, exactly as a backend calls it.
    pub name: String,
    /// The paths it orders by, one after the other.
    pub fields: Vec<(String, Direction)>,
    /// No two records have the same entry.
    #[serde(default)]
    pub unique: bool,
    /// It is for equality only, where a backend makes something else of that: MongoDB's hashed indexes, which hold no arrays.
    #[serde(default)]
    pub hashed: bool,
    /// It is of the words in its fields, for `MATCH`. A collection has one such index at most.
    #[serde(default)]
    pub text: bool,
    /// Records that have none of the fields have no entry.
    #[serde(default)]
    pub sparse: bool,
    /// Only records that this condition admits have entries.
    #[serde(default)]
    pub partial: Option<Condition>,
    /// Records are deleted this many seconds after the date in the only field.
    #[serde(default)]
    pub expires_after_seconds: Option<u32>,
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
    pub fn index(mut self, index: Index) -> Self {
        self.indexes.push(index);
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
            if !names.insert(&index.name) {
                return invalid(&index_path(n), format!("{:?} is declared twice, or is _id's own", index.name));
            }
        }
        match self.indexes.iter().enumerate().filter(|(_, index)| index.text).nth(1) {
            Some((n, _)) => invalid(&index_path(n), format!("is a second text index; {ONE_TEXT_INDEX}")),
            None => Ok(()),
        }
    }

    /// The index by which `MATCH` looks.
    pub fn text_index(&self) -> Option<&Index> {
        self.indexes.iter().find(|index| index.text)
    }

    /// Checks that what is declared, and was not before, leaves the collection with one text index at most.
    ///
    /// # Errors
    /// [`RecordError::IndexConflict`].
    pub fn one_text_index<'k>(&self, known: impl IntoIterator<Item = &'k Index>) -> Result<(), RecordError> {
        let Some(declared) = self.text_index() else { return Ok(()) };
        match known.into_iter().find(|known| known.text && known.name != declared.name) {
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

impl Index {
    /// An index on these paths, named as MongoDB names it: `state_1_time_-1`.
    pub fn new<'a>(fields: impl IntoIterator<Item = (&'a str, Direction)>) -> Self {
        let fields: Vec<_> = fields.into_iter().map(|(path, direction)| (path.to_owned(), direction)).collect();
        let part = |(path, direction): &(String, Direction)| match direction {
            Direction::Ascending => format!("{path}_1"),
            Direction::Descending => format!("{path}_-1"),
        };
        let name = fields.iter().map(part).collect::<Vec<_>>().join("_");
        Self {
            name,
            fields,
            unique: false,
            hashed: false,
            text: false,
            sparse: false,
            partial: None,
            expires_after_seconds: None,
        }
    }

    /// An index on one path, lowest first.
    pub fn on(path: &str) -> Self {
        Self::new([(path, Direction::Ascending)])
    }

    /// An index on one path for equality only, named as MongoDB names it: `state_hashed`.
    pub fn hashed(path: &str) -> Self {
        Self { hashed: true, ..Self::on(path).named(format!("{path}_hashed")) }
    }

    /// An index of the words in these fields, named as MongoDB names it: `title_text_body_text`.
    pub fn text<'a>(paths: impl IntoIterator<Item = &'a str>) -> Self {
        let fields = Self::new(paths.into_iter().map(|path| (path, Direction::Ascending)));
        let name = fields.fields.iter().map(|(path, _)| format!("{path}_text")).collect::<Vec<_>>().join("_");
        Self { text: true, ..fields.named(name) }
    }

    /// Gives it another name.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Allows no two records with the same entry.
    pub fn unique(self) -> Self {
        Self { unique: true, ..self }
    }

    /// Leaves out records that have none of its fields.
    pub fn sparse(self) -> Self {
        Self { sparse: true, ..self }
    }

    /// Leaves out records that this condition does not admit.
    pub fn partial(self, condition: Condition) -> Self {
        Self { partial: Some(condition), ..self }
    }

    /// Lets records be deleted this many seconds after the date in its field.
    pub fn expires_after_seconds(self, seconds: u32) -> Self {
        Self { expires_after_seconds: Some(seconds), ..self }
    }

    /// The fields of an entry of this document and their values, for a refusal: of an array, the element that the entry is of. Entries
    /// are those of [`document_keys`](crate::order::document_keys).
    pub fn readable_entry(&self, document: &RawDocument, entry: &[u8]) -> Document {
        let value = |path: &str, direction| {
            let value = follow(document, path)?;
            let whole = Bson::try_from(value).ok()?;
            match (value, self.fields.len()) {
                (RawBsonRef::Array(array), 1) => Some(element(array, direction, entry).unwrap_or(whole)),
                _ => Some(whole),
            }
        };
        let fields = self.fields.iter();
        fields.map(|(path, direction)| (path.clone(), value(path, *direction).unwrap_or(Bson::Null))).collect()
    }

    fn check(&self) -> Result<(), String> {
        if self.fields.is_empty() || self.fields.len() > limits::INDEX_FIELDS_MAX {
            return Err(format!("has {} fields; name 1 to {}", self.fields.len(), limits::INDEX_FIELDS_MAX));
        }
        if self.name.is_empty() || self.name.len() > limits::PATH_BYTES_MAX || self.name.contains('\0') {
            return Err(format!("needs a name of 1 to {} bytes without NUL", limits::PATH_BYTES_MAX));
        }
        let mut paths = std::collections::HashSet::new();
        for (path, _) in &self.fields {
            key_path(path)?;
            if !paths.insert(path) {
                return Err(format!("has the field {path:?} twice"));
            }
        }
        if self.hashed && (self.unique || self.fields.len() > 1 || self.expires_after_seconds.is_some()) {
            return Err("is hashed, so it has one field, and neither is unique nor expires".to_owned());
        }
        if self.expires_after_seconds.is_some() && self.fields.len() > 1 {
            return Err("expires, so it can have one field only: the date".to_owned());
        }
        if self.text {
            self.check_text()?;
        }
        let judged = |condition: &Condition| condition.validate().and_then(|()| condition.judgeable());
        self.partial.as_ref().map_or(Ok(()), |condition| judged(condition).map_err(|error| error.to_string()))
    }

    fn check_text(&self) -> Result<(), String> {
        let plain = Self { name: String::new(), fields: Vec::new(), text: false, ..self.clone() };
        if plain != Self::new([]) || self.fields.iter().any(|(_, direction)| *direction == Direction::Descending) {
            return Err("is a text index, so it has fields without a direction and nothing else".to_owned());
        }
        let kept = |(path, _): &&(String, Direction)| matches!(path.split('.').next(), Some("_fts" | "_ftsx"));
        match self.fields.iter().find(kept) {
            Some((path, _)) => Err(format!("has the field {path:?}, a name that MongoDB's text indexes keep")),
            None => Ok(()),
        }
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

/// Whether records can be ordered by this path.
pub(super) fn key_path(path: &str) -> Result<(), String> {
    valid_path(path).map_err(|message| format!("field {path:?} {message}"))?;
    let is_place = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    if path.split('.').any(is_place) {
        return Err(format!("field {path:?} names an element by its place; records are ordered by fields"));
    }
    Ok(())
}
