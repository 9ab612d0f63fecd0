//! Updates of named fields of a document that leave the other fields as they are.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, RawBson};

use super::change::{readable_value, valid_document};
use crate::condition::valid_path;
use crate::{Code, Invalid};

/// Checks the paths and values of an update. At least one path is required; each is valid, none is `_id` or inside it, and none equals
/// another or is inside it.
///
/// # Errors
/// `invalid_record`.
pub(super) fn valid_fields(fields: &[(String, Bson)], unset: &[String]) -> Result<(), Invalid> {
    if fields.is_empty() && unset.is_empty() {
        return Err(invalid("fields", "name no field; set or unset at least one".to_owned()));
    }
    let mut paths: Vec<&str> =
        fields.iter().map(|(path, _)| path.as_str()).chain(unset.iter().map(|path| path.as_str())).collect();
    for path in &paths {
        valid_path(path).map_err(|message| invalid("fields", format!("have the path {path:?}, which {message}")))?;
        if path.split('.').next() == Some("_id") {
            return Err(invalid("fields", "name _id, which never changes".to_owned()));
        }
    }
    paths.sort_unstable_by(|one, other| one.split('.').cmp(other.split('.')));
    let inside =
        |one: &str, other: &str| other == one || other.strip_prefix(one).is_some_and(|rest| rest.starts_with('.'));
    if let Some(pair) = paths.windows(2).find(|pair| inside(pair[0], pair[1])) {
        return Err(invalid("fields", format!("overlap: {:?} and {:?}; name each field once", pair[0], pair[1])));
    }
    for (path, value) in fields {
        let raw = RawBson::try_from(value.clone())
            .map_err(|error| invalid("fields", format!("have {path:?}, which cannot be stored: {error}")))?;
        readable_value(raw.as_raw_bson_ref(), path.split('.').count())?;
    }
    Ok(())
}

/// Returns the document with these fields set and those removed. Missing documents on a path are created. New fields follow the existing
/// ones, in the order in which MongoDB's `$set` adds them.
///
/// # Errors
/// `invalid_record` if a path leads through a value that is not a document, or if the resulting document cannot be a record.
pub fn with_fields(
    document: &RawDocument,
    fields: &[(String, Bson)],
    unset: &[String],
) -> Result<RawDocumentBuf, Invalid> {
    let mut root = Node::default();
    for (path, value) in fields {
        root.add(path, Some(value));
    }
    for path in unset {
        root.add(path, None);
    }
    let changed = root.apply(document, "")?;
    valid_document(&changed)?;
    Ok(changed)
}

/// The pending changes of a document's fields, by field name.
#[derive(Default)]
struct Node<'a>(BTreeMap<Name<'a>, What<'a>>);

enum What<'a> {
    Set(&'a Bson),
    Unset,
    Inside(Node<'a>),
}

impl<'a> Node<'a> {
    fn add(&mut self, path: &'a str, value: Option<&'a Bson>) {
        match path.split_once('.') {
            None => {
                self.0.insert(Name(path), value.map_or(What::Unset, What::Set));
            }
            Some((first, rest)) => {
                if let What::Inside(inner) = self.0.entry(Name(first)).or_insert_with(|| What::Inside(Node::default()))
                {
                    inner.add(rest, value);
                }
            }
        }
    }

    /// Returns whether any field inside is set; a path that is only removed creates no document.
    fn sets(&self) -> bool {
        self.0.values().any(|what| match what {
            What::Set(_) => true,
            What::Unset => false,
            What::Inside(inner) => inner.sets(),
        })
    }

    fn apply(&self, document: &RawDocument, at: &str) -> Result<RawDocumentBuf, Invalid> {
        let mut out = RawDocumentBuf::new();
        let mut seen = Vec::new();
        for element in document.iter() {
            let (name, value) =
                element.map_err(|error| invalid("document", format!("is not a BSON document: {error}")))?;
            let Some(what) = self.0.get(&Name(name.as_str())) else {
                out.append(name, value);
                continue;
            };
            seen.push(name.as_str());
            match (what, value) {
                (What::Unset, _) => {}
                (What::Set(value), _) => out.append(name, raw(value)?),
                (What::Inside(inner), RawBsonRef::Document(there)) => {
                    out.append(name, inner.apply(there, &below(at, name.as_str()))?);
                }
                (What::Inside(_), other) => {
                    let path = below(at, name.as_str());
                    let kind = other.element_type();
                    return Err(invalid(
                        "fields",
                        format!("lead through {path:?}, which is {kind:?} and not a document"),
                    ));
                }
            }
        }
        for (name, what) in self.0.iter().filter(|(name, _)| !seen.contains(&name.0)) {
            let name_of = bson::raw::CString::try_from(name.0)
                .map_err(|error| invalid("fields", format!("have a name that cannot be stored: {error}")))?;
            match what {
                What::Set(value) => out.append(&*name_of, raw(value)?),
                What::Inside(inner) if inner.sets() => {
                    out.append(&*name_of, inner.apply(&RawDocumentBuf::new(), &below(at, name.0))?);
                }
                What::Unset | What::Inside(_) => {}
            }
        }
        Ok(out)
    }
}

/// A field name, ordered as MongoDB orders the fields of an update: numbers by value, other names by their bytes.
#[derive(PartialEq, Eq)]
struct Name<'a>(&'a str);

impl Ord for Name<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let digits = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        if digits(self.0) && digits(other.0) {
            let plain = |name: &'_ str| name.trim_start_matches('0').len();
            let (one, two) = (self.0.trim_start_matches('0'), other.0.trim_start_matches('0'));
            return plain(self.0).cmp(&plain(other.0)).then_with(|| one.cmp(two)).then_with(|| self.0.cmp(other.0));
        }
        self.0.cmp(other.0)
    }
}

impl PartialOrd for Name<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn below(at: &str, name: &str) -> String {
    if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") }
}

fn raw(value: &Bson) -> Result<RawBson, Invalid> {
    RawBson::try_from(value.clone())
        .map_err(|error| invalid("fields", format!("have a value that cannot be stored: {error}")))
}

fn invalid(path: &str, message: String) -> Invalid {
    Invalid::new(Code::InvalidRecord, path, message)
}

#[cfg(test)]
mod tests {
    use bson::{Document, doc};

    use super::*;

    fn set(document: Document, fields: &[(&str, Bson)], unset: &[&str]) -> Result<Document, Invalid> {
        let document = RawDocumentBuf::try_from(&document).expect("a document");
        let fields: Vec<_> = fields.iter().map(|(path, value)| ((*path).to_owned(), value.clone())).collect();
        let unset: Vec<_> = unset.iter().map(|path| (*path).to_owned()).collect();
        valid_fields(&fields, &unset)?;
        Ok(Document::try_from(&*with_fields(&document, &fields, &unset)?).expect("a document"))
    }

    #[test]
    fn named_fields_change_and_the_others_stay_in_their_places() {
        let there = || doc! { "_id": 1, "z": 1, "in": { "b": 1, "a": 2 }, "list": [1] };
        let changed = set(
            there(),
            &[("z", 2.into()), ("in.a", 3.into()), ("new.x.y", true.into()), ("10", 1.into()), ("9", 1.into())],
            &["in.b", "gone.deep"],
        );
        let due =
            doc! { "_id": 1, "z": 2, "in": { "a": 3 }, "list": [1], "9": 1, "10": 1, "new": { "x": { "y": true } } };
        assert_eq!(changed, Ok(due));
        assert_eq!(set(there(), &[("list", Bson::Null)], &["z", "in"]), Ok(doc! { "_id": 1, "list": Bson::Null }));
    }

    #[test]
    fn paths_that_lead_through_no_document_overlap_or_name_the_id_are_refused() {
        let there = || doc! { "_id": 1, "list": [{ "a": 1 }], "n": 1, "none": Bson::Null };
        let one = || Bson::from(1);
        for (fields, unset) in [
            (vec![], vec![]),
            (vec![("_id", one())], vec![]),
            (vec![("_id.x", one())], vec![]),
            (vec![], vec!["_id"]),
            (vec![("a", one()), ("a.b", one())], vec![]),
            (vec![("a-b", one()), ("a.b", one()), ("a", one())], vec![]),
            (vec![("a", one())], vec!["a"]),
            (vec![("a..b", one())], vec![]),
            (vec![("$a", one())], vec![]),
            (vec![("list.0", one())], vec![]),
            (vec![("list.a", one())], vec![]),
            (vec![("n.a", one())], vec![]),
            (vec![("none.a", one())], vec![]),
            (vec![], vec!["n.a"]),
        ] {
            let error = set(there(), &fields, &unset).expect_err("refused");
            assert_eq!((error.code, &*error.path), (Code::InvalidRecord, "fields"), "{fields:?} {unset:?}");
        }
    }
}
