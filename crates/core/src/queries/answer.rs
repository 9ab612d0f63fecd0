//! Conversion of stored documents to results.

use bson::RawBsonRef;
use bson::raw::{RawDocument, RawDocumentBuf, cstr};

use super::StoredQuery;
use super::asked::ANSWERED;
use crate::{Code, DocumentKind, Invalid};

/// The documents of a result while it is collected: the selected fields of each, under the names that programs know.
pub struct Answered<'q> {
    query: &'q StoredQuery,
    kind: DocumentKind,
    documents: Vec<RawDocumentBuf>,
    bytes: usize,
}

impl<'q> Answered<'q> {
    /// Creates an empty result.
    pub fn new(query: &'q StoredQuery, kind: DocumentKind) -> Self {
        Self { query, kind, documents: Vec::new(), bytes: 0 }
    }

    /// Adds a document in its stored form.
    ///
    /// # Errors
    /// `query_answer_too_large`.
    pub fn add(&mut self, stored: &RawDocument) -> Result<(), Invalid> {
        let document = shown(stored, self.query, self.kind);
        self.bytes += document.as_bytes().len();
        fits(self.bytes, self.query)?;
        self.documents.push(document);
        Ok(())
    }

    /// Returns the number of documents.
    pub fn len(&self) -> usize {
        self.documents.len()
    }

    /// Returns whether there are no documents.
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }

    /// Returns all documents.
    pub fn documents(self) -> Vec<RawDocumentBuf> {
        self.documents
    }
}

/// Refuses a result of more bytes than the query allows.
pub(super) fn fits(bytes: usize, query: &StoredQuery) -> Result<(), Invalid> {
    match query.bytes_max {
        Some(most) if bytes > most => {
            let message = format!("is more than {most} bytes; request fewer documents, or fewer of their fields");
            Err(Invalid::new(Code::QueryAnswerTooLarge, "answer", message))
        }
        _ => Ok(()),
    }
}

/// Converts a stored document to its form in a result.
pub(super) fn shown(stored: &RawDocument, query: &StoredQuery, kind: DocumentKind) -> RawDocumentBuf {
    let id = match kind {
        DocumentKind::Record => cstr!("_id"),
        DocumentKind::Commit => cstr!("id"),
        DocumentKind::Snapshot => cstr!("aggregateId"),
    };
    let mut out = RawDocumentBuf::new();
    for (name, value) in query.projection.of(stored).iter().flatten() {
        match (name.as_str(), value) {
            ("_id", value) => out.append(id, value),
            ("annals", RawBsonRef::Document(ours)) if kind == DocumentKind::Commit => {
                let ours = answered(ours);
                if !ours.is_empty() {
                    out.append(cstr!("annals"), ours);
                }
            }
            (_, value) => out.append(name, value),
        }
    }
    out
}

/// Returns the fields of a commit's `annals` that exist on every backend.
fn answered(ours: &RawDocument) -> RawDocumentBuf {
    let mut out = RawDocumentBuf::new();
    for (name, value) in ours.iter().flatten().filter(|(name, _)| ANSWERED.contains(&name.as_str())) {
        out.append(name, value);
    }
    out
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::{Condition, Projection};

    fn query(projection: Projection, bytes_max: Option<usize>) -> StoredQuery {
        StoredQuery { condition: Condition::All, projection, sort: Vec::new(), skip: 0, limit: 9, bytes_max }
    }

    #[test]
    fn ids_have_their_own_names_and_what_a_backend_keeps_for_itself_is_left_out() {
        let stored = rawdoc! { "_id": "c", "aggregateId": "o", "annals": { "any": true, "times": [1] } };
        let whole = query(Projection::Whole, None);
        let shown_of = |kind| shown(&stored, &whole, kind);
        assert_eq!(
            shown_of(DocumentKind::Commit),
            rawdoc! { "id": "c", "aggregateId": "o", "annals": { "times": [1] } }
        );
        let any = rawdoc! { "_id": "c", "annals": { "any": true } };
        assert_eq!(shown(&any, &whole, DocumentKind::Commit), rawdoc! { "id": "c" });
        assert_eq!(
            shown(&any, &whole, DocumentKind::Snapshot),
            rawdoc! { "aggregateId": "c", "annals": { "any": true } }
        );
        let only = query(Projection::only(["n"]), None);
        assert_eq!(
            shown(&rawdoc! { "n": 1, "_id": 2, "m": 3 }, &only, DocumentKind::Commit),
            rawdoc! { "n": 1, "id": 2 }
        );
        let without = query(Projection::without(["_id"]), None);
        assert_eq!(shown(&any, &without, DocumentKind::Snapshot), rawdoc! { "annals": { "any": true } });
    }

    #[test]
    fn an_answer_ends_with_an_error_where_it_would_be_too_large() {
        let query = query(Projection::Whole, Some(40));
        let mut answer = Answered::new(&query, DocumentKind::Snapshot);
        assert_eq!(answer.add(&rawdoc! { "_id": 1 }), Ok(()));
        assert_eq!(answer.add(&rawdoc! { "_id": 2 }).expect_err("too large").code, Code::QueryAnswerTooLarge);
        assert_eq!((answer.len(), answer.is_empty()), (1, false));
    }
}
