//! Turns problem documents back into the errors of records, with the same fields.

use annals_core::bson::Bson;
use annals_core::wire::records::extended_value;
use annals_core::{ChangeNumber, ChangesError, Code, RecordError};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::answers::{Problem, other, problem, unknown};
use crate::client::http::Answer;

/// The fields of a problem document about records.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Facts {
    collection: Option<String>,
    id: Option<Value>,
    change: Option<usize>,
    revision: Option<u64>,
    index: Option<String>,
    /// Kept as text, because the order of its fields matters.
    entry: Option<Box<RawValue>>,
    oldest: Option<ChangeNumber>,
    last: Option<ChangeNumber>,
}

/// Returns the error of a refused request about records.
pub(in crate::client) fn refused(answer: &Answer) -> RecordError {
    let (code, problem) = match problem(answer) {
        Ok(found) => found,
        Err(unknown) => return unknown.into(),
    };
    let facts = serde_json::from_slice::<Facts>(&answer.body).unwrap_or_default();
    match code {
        Code::UnknownCollection | Code::RecordConflict | Code::DuplicateKey | Code::IndexConflict => {
            let said = facts.of_record(code, problem);
            said.unwrap_or_else(|| unknown(&format!("{} without its subject", code.as_str())).into())
        }
        code => other(code, problem),
    }
}

/// Returns the error of a refused request for the changes after `after`.
pub(super) fn changes_refused(answer: &Answer, after: ChangeNumber) -> ChangesError {
    let (code, problem) = match problem(answer) {
        Ok(found) => found,
        Err(unknown) => return unknown.into(),
    };
    let facts = serde_json::from_slice::<Facts>(&answer.body).unwrap_or_default();
    let without = || ChangesError::from(unknown(&format!("{} without its subject", code.as_str())));
    match code {
        Code::ChangesGone => facts.oldest.map_or_else(without, |oldest| ChangesError::Gone { after, oldest }),
        Code::UnknownChange => facts.last.map_or_else(without, |last| ChangesError::Unknown { after, last }),
        Code::UnknownCollection => facts.collection.map_or_else(without, ChangesError::UnknownCollection),
        Code::NoFeed => facts.collection.map_or_else(without, ChangesError::NoFeed),
        code => other(code, problem),
    }
}

impl Facts {
    fn of_record(self, code: Code, problem: Problem) -> Option<RecordError> {
        let collection = self.collection?;
        Some(match code {
            Code::UnknownCollection => RecordError::UnknownCollection(collection),
            Code::RecordConflict => {
                let (id, change) = (self.id?.to_string(), self.change?);
                RecordError::NotAsExpected { collection, id, change, actual: self.revision }
            }
            Code::DuplicateKey => match extended_value(self.entry?.get()).ok()? {
                Bson::Document(key) => RecordError::DuplicateKey {
                    collection,
                    index: self.index?,
                    key: Box::new(key),
                    change: self.change?,
                },
                _ => return None,
            },
            _ => RecordError::IndexConflict { collection, index: self.index?, message: problem.into_reason() },
        })
    }
}

#[cfg(test)]
mod tests {
    use annals_core::bson::doc;
    use annals_core::{Invalid, StoreError};
    use hyper::StatusCode;

    use super::*;

    fn answer(body: serde_json::Value) -> Answer {
        Answer { status: StatusCode::CONFLICT, body: body.to_string().into() }
    }

    #[test]
    fn a_problem_that_lacks_what_it_is_about_is_an_answer_that_is_not_known() {
        for code in ["unknown_collection", "record_conflict", "duplicate_key", "index_conflict", "a_new_code"] {
            let error = refused(&answer(serde_json::json!({ "code": code, "detail": "x" })));
            assert!(matches!(error, RecordError::Store(StoreError::Unreachable(_))), "{code}: {error:?}");
        }
        for code in ["changes_gone", "unknown_change", "unknown_collection", "no_feed", "a_new_code"] {
            let error = changes_refused(&answer(serde_json::json!({ "code": code, "detail": "x" })), 1);
            assert!(matches!(error, ChangesError::Store(StoreError::Unreachable(_))), "{code}: {error:?}");
        }
    }

    #[test]
    fn the_id_of_a_conflict_reads_as_the_store_wrote_it() {
        for id in [Bson::String("o-1".to_owned()), Bson::Int64(7), Bson::Document(doc! { "a": 1_i64 })] {
            let shown = serde_json::from_str::<Value>(&id.to_string()).expect("JSON");
            let body = serde_json::json!({"code": "record_conflict", "collection": "c", "id": shown, "change": 0});
            let RecordError::NotAsExpected { id: read, .. } = refused(&answer(body)) else { panic!("{id}") };
            assert_eq!(read.replace(' ', ""), id.to_string().replace(' ', ""));
        }
    }

    #[test]
    fn an_entry_keeps_the_order_and_types_of_its_fields() {
        let body = r#"{"code":"duplicate_key","collection":"c","index":"z_1_a_1","change":2,
            "entry":{"z":{"$numberInt":"1"},"a":{"$date":"1970-01-01T00:00:00.005Z"}}}"#;
        let answer = Answer { status: StatusCode::CONFLICT, body: body.into() };
        let RecordError::DuplicateKey { key, change: 2, .. } = refused(&answer) else { panic!("{body}") };
        assert_eq!(key.to_string(), doc! { "z": 1, "a": annals_core::bson::DateTime::from_millis(5) }.to_string());
    }

    #[test]
    fn other_problems_are_those_of_the_store_or_of_what_was_asked() {
        let full = StoreError::DiskFull("8 MiB wanted".into());
        let body =
            serde_json::json!({ "code": full.code().as_str(), "detail": full.to_string(), "reason": full.reason() });
        assert_eq!(refused(&answer(body)), RecordError::Store(full));
        let invalid = Invalid::new(Code::InvalidQuery, "after", "is not a cursor");
        let body = serde_json::json!({ "code": "invalid_query", "path": "after", "detail": invalid.to_string(), "reason": "is not a cursor" });
        assert_eq!(refused(&answer(body)), RecordError::Invalid(invalid));
    }
}
