//! Conditions and queries of records from outside, what they say of documents, and the order of the documents' values.

use std::cmp::Ordering;

use annals_core::bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use annals_core::bson::rawdoc;
use annals_core::order::{compare, encoded};
use annals_core::wire::binary::split_document;
use annals_core::wire::records::{Encoding, read_changes, read_collection, read_document, read_query};
use annals_core::{Condition, Invalid, Matcher, valid_document};

/// Most documents that one input is judged with.
const DOCUMENTS_MAX: usize = 12;

/// Takes an input apart: JSON, which is a query, a batch, a declaration and a document; or BSON documents one behind the other, of which
/// the first is a condition and the others are what it is judged with.
pub fn check(bytes: &[u8]) {
    if bytes.first() == Some(&b'{') {
        json(bytes);
        return;
    }
    let (mut documents, mut rest) = (Vec::new(), bytes);
    while let Ok(Some((document, behind))) = split_document(rest)
        && documents.len() < DOCUMENTS_MAX
    {
        documents.push(document);
        rest = behind;
    }
    let documents: Vec<_> = documents.iter().filter_map(|bytes| RawDocument::from_bytes(bytes).ok()).collect();
    // What a store would take; the order of anything else is asked of nobody.
    let stored: Vec<_> = documents.iter().copied().filter(|document| valid_document(document).is_ok()).collect();
    for document in &documents {
        bodies(document.as_bytes(), Encoding::Bson);
        if let Some(condition) = refused_or(Condition::from_bson(document)) {
            written_again(&condition);
            judged(&condition, &stored);
        }
    }
    ordered(&stored);
}

fn json(bytes: &[u8]) {
    for encoding in [Encoding::Json, Encoding::ExtendedJson] {
        let found = refused_or(read_document(bytes, encoding));
        let documents: Vec<&RawDocument> = found.iter().map(|document| &**document).collect();
        if let Some(query) = bodies(bytes, encoding) {
            judged(&query, &documents);
        }
    }
}

/// Reads all that a body can be; the condition of a query is given back.
fn bodies(bytes: &[u8], encoding: Encoding) -> Option<Condition> {
    refused_or(read_changes(bytes, encoding));
    if let Some(collection) = refused_or(read_collection("c", bytes, encoding)) {
        refused_or(collection.validate());
    }
    let query = refused_or(read_query("c", bytes, encoding))?;
    refused_or(query.validate());
    Some(query.condition)
}

/// What was read; a refusal must blame the input in a sentence.
fn refused_or<T>(read: Result<T, Invalid>) -> Option<T> {
    read.map_err(|refusal| {
        assert!(!refusal.message.is_empty(), "a refusal without a sentence: {refusal:?}");
        assert!((400..500).contains(&refusal.code.status()), "{refusal:?} does not blame the input");
    })
    .ok()
}

/// A condition survives its BSON.
fn written_again(condition: &Condition) {
    let Ok(written) = condition.to_bson() else { return };
    let again = Condition::from_bson(&written).expect("what was written is read");
    // As text, because NaN is not equal to itself.
    assert_eq!(format!("{again:?}"), format!("{condition:?}"));
}

/// A condition that may be judged says the same in other words.
fn judged(condition: &Condition, documents: &[&RawDocument]) {
    if condition.validate().is_err() {
        return;
    }
    let same = Matcher::new(&Condition::And(vec![Condition::All, condition.clone()]));
    let opposite = Matcher::new(&Condition::Nor(vec![condition.clone()]));
    let matcher = Matcher::new(condition);
    let sample = sample();
    for document in documents.iter().copied().chain([&*sample]) {
        let holds = matcher.matches(document);
        assert_eq!(same.matches(document), holds, "{condition:?} of {document:?}");
        assert_ne!(opposite.matches(document), holds, "{condition:?} of {document:?}");
    }
}

fn sample() -> RawDocumentBuf {
    rawdoc! { "_id": 1, "a": { "b": [1, { "c": "x" }, [2, 3]] }, "n": 1.5, "s": "text", "null": null }
}

/// The order of the values is total, and encodings can stand one behind the other.
fn ordered(documents: &[&RawDocument]) {
    let whole = documents.iter().map(|document| RawBsonRef::Document(document));
    let fields = documents.iter().flat_map(|document| document.iter().flatten()).map(|(_, value)| value);
    let values: Vec<_> = whole.chain(fields).take(DOCUMENTS_MAX).collect();
    for a in &values {
        assert_eq!(compare(*a, *a), Ordering::Equal);
        for b in &values {
            let order = compare(*a, *b);
            assert_eq!(compare(*b, *a), order.reverse(), "{a:?} and {b:?}");
            if let (Some(a), Some(b)) = (integer(*a), integer(*b)) {
                assert_eq!(order, a.cmp(&b), "{a} and {b}");
            }
            let (short, long) = (encoded(*a), encoded(*b));
            assert!(short.len() >= long.len() || !long.starts_with(&short), "{a:?} begins {b:?}");
            for c in &values {
                let ascends = order.is_le() && compare(*b, *c).is_le();
                assert!(!ascends || compare(*a, *c).is_le(), "{a:?}, {b:?}, {c:?}");
            }
        }
    }
}

fn integer(value: RawBsonRef<'_>) -> Option<i64> {
    value.as_i64().or_else(|| value.as_i32().map(i64::from))
}
