//! Selects the texts of a document that an index covers.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;

use bson::RawBsonRef;
use bson::raw::RawDocument;

/// The paths of a text index.
#[derive(Debug, Clone)]
pub(crate) struct TextFields(BTreeSet<String>);

impl TextFields {
    pub(crate) fn new<'p>(paths: impl IntoIterator<Item = &'p str>) -> Self {
        Self(paths.into_iter().map(str::to_owned).collect())
    }

    /// Returns the texts at the paths, and those in arrays there. Nested arrays are not followed.
    pub(crate) fn texts<'d>(&self, document: &'d RawDocument) -> Vec<&'d str> {
        let mut texts = Vec::new();
        let fields = document.iter().flatten();
        fields.for_each(|(name, value)| self.follow(name.as_str(), value, false, &mut texts));
        texts
    }

    fn follow<'d>(&self, path: &str, value: RawBsonRef<'d>, in_array: bool, texts: &mut Vec<&'d str>) {
        let Some(first) = self.first_from(path, matches!(value, RawBsonRef::Document(_))) else { return };
        let below = first.strip_prefix(path);
        match value {
            // The server ignores a text after its first NUL.
            RawBsonRef::String(text) if below == Some("") => texts.push(text.split('\0').next().unwrap_or_default()),
            RawBsonRef::Document(inner) if below.is_some_and(|below| below.starts_with('.')) => {
                for (name, value) in inner.iter().flatten() {
                    self.follow(&format!("{path}.{}", name.as_str()), value, false, texts);
                }
            }
            RawBsonRef::Array(array)
                if !in_array && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('.')) =>
            {
                array.into_iter().flatten().for_each(|element| self.follow(path, element, true, texts));
            }
            _ => {}
        }
    }

    /// Returns the first path of the index, in byte order, at or after this one. The server considers no other path. If this path does not
    /// lead to it, nothing is found here, even if a later path would match (`a-x` hides an array at `a` from `a.b`).
    fn first_from(&self, path: &str, is_document: bool) -> Option<&str> {
        // Each field of each evaluated document comes here, so the path with its dot is compared without being built.
        let is_before = |known: &str| is_document && known.bytes().cmp(path.bytes().chain([b'.'])) == Ordering::Less;
        let from = (Bound::Included(path), Bound::Unbounded);
        self.0.range::<str, _>(from).map(String::as_str).find(|known| !is_before(known))
    }
}
