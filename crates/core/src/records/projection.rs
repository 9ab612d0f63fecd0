//! Projections: the fields of a document that a query returns.

use std::collections::BTreeMap;

use bson::RawBsonRef;
use bson::raw::{RawArray, RawArrayBuf, RawDocument, RawDocumentBuf};

use crate::DocumentKind;
use crate::condition::valid_path;

/// The fields of a document that a query returns. A path leads through arrays into each of their documents.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Projection {
    /// All fields.
    #[default]
    Whole,
    /// These fields and `_id`. In an array on the path, elements that are not documents are left out.
    Only(Vec<String>),
    /// All fields but these.
    Without(Vec<String>),
}

/// Paths as a tree: a leaf covers everything below it.
#[derive(Default)]
struct Tree(BTreeMap<String, Tree>);

impl Projection {
    /// Returns these fields and `_id`.
    pub fn only<'a>(paths: impl IntoIterator<Item = &'a str>) -> Self {
        Self::Only(paths.into_iter().map(str::to_owned).collect())
    }

    /// Returns all fields but these.
    pub fn without<'a>(paths: impl IntoIterator<Item = &'a str>) -> Self {
        Self::Without(paths.into_iter().map(str::to_owned).collect())
    }

    /// Converts the paths to the field names under which documents of this kind are stored.
    pub(crate) fn stored(self, kind: DocumentKind) -> Self {
        let stored = |paths: Vec<String>| paths.into_iter().map(|path| kind.stored(&path).to_owned()).collect();
        match self {
            Self::Whole => Self::Whole,
            Self::Only(paths) => Self::Only(stored(paths)),
            Self::Without(paths) => Self::Without(stored(paths)),
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let (Self::Only(paths) | Self::Without(paths)) = self else { return Ok(()) };
        for (n, path) in paths.iter().enumerate() {
            valid_path(path).map_err(|message| format!("field {path:?} {message}"))?;
            let inside =
                |outer: &str| path.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
            if let Some((_, outer)) = paths.iter().enumerate().find(|(other, outer)| *other != n && inside(outer)) {
                return Err(format!("field {path:?} is requested twice: {outer:?} includes it"));
            }
        }
        Ok(())
    }

    /// Returns the selected part of a document, with its fields in their original order.
    pub fn of(&self, document: &RawDocument) -> RawDocumentBuf {
        let (paths, keep) = match self {
            Self::Whole => return document.to_owned(),
            Self::Only(paths) => (paths, true),
            Self::Without(paths) => (paths, false),
        };
        let mut tree = Tree::default();
        paths.iter().for_each(|path| tree.add(path));
        if keep {
            tree.add("_id");
        }
        part(document, &tree, keep)
    }
}

impl Tree {
    fn add(&mut self, path: &str) {
        path.split('.').fold(self, |tree, name| tree.0.entry(name.to_owned()).or_default());
    }

    fn is_leaf(&self) -> bool {
        self.0.is_empty()
    }
}

fn part(document: &RawDocument, tree: &Tree, keep: bool) -> RawDocumentBuf {
    let mut out = RawDocumentBuf::new();
    for (name, value) in document.iter().flatten() {
        match (tree.0.get(name.as_str()), value) {
            (None, value) if !keep => out.append(name, value),
            (None, _) => {}
            (Some(below), value) if below.is_leaf() => {
                if keep {
                    out.append(name, value);
                }
            }
            (Some(below), RawBsonRef::Document(inner)) => out.append(name, part(inner, below, keep)),
            (Some(below), RawBsonRef::Array(inner)) => out.append(name, part_of_array(inner, below, keep)),
            (Some(_), value) if !keep => out.append(name, value),
            (Some(_), _) => {}
        }
    }
    out
}

fn part_of_array(array: &RawArray, tree: &Tree, keep: bool) -> RawArrayBuf {
    let mut out = RawArrayBuf::new();
    for value in array.into_iter().flatten() {
        match value {
            RawBsonRef::Document(inner) => out.push(part(inner, tree, keep)),
            RawBsonRef::Array(inner) => out.push(part_of_array(inner, tree, keep)),
            value if !keep => out.push(value),
            _ => {}
        }
    }
    out
}
