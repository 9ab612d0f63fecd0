//! Writes the answer to a commit without intermediate values, because it is the most frequent answer.

use std::io::Write;

use uuid::Uuid;
use uuid::fmt::Hyphenated;

use crate::CommitOutcome;

/// Appends the JSON of a [`CommitAnswer`](super::CommitAnswer) to `out`.
pub fn write_commit_answer(outcome: &CommitOutcome, out: &mut Vec<u8>) {
    out.reserve(128 + 80 * outcome.event_ids.len());
    out.extend_from_slice(br#"{"commit_id":""#);
    write_uuid(outcome.commit_id, out);
    out.extend_from_slice(br#"","version":"#);
    write_number(outcome.version, out);
    out.extend_from_slice(br#","events":["#);
    for (place, id) in (0..).zip(&outcome.event_ids) {
        if place > 0 {
            out.push(b',');
        }
        out.extend_from_slice(br#"{"id":""#);
        write_uuid(*id, out);
        out.push(b'"');
        if let Some(first) = outcome.first_sequence_number {
            out.extend_from_slice(br#","sequence_number":"#);
            write_number(first + place, out);
        }
        out.push(b'}');
    }
    out.extend_from_slice(br#"],"duplicate":"#);
    out.extend_from_slice(if outcome.duplicate { b"true" } else { b"false" });
    out.extend_from_slice(br#","reached":""#);
    out.extend_from_slice(outcome.reached().as_str().as_bytes());
    out.extend_from_slice(br#""}"#);
}

fn write_uuid(id: Uuid, out: &mut Vec<u8>) {
    let mut text = [0; Hyphenated::LENGTH];
    out.extend_from_slice(id.hyphenated().encode_lower(&mut text).as_bytes());
}

fn write_number(number: u64, out: &mut Vec<u8>) {
    // Writing to memory cannot fail.
    let _ = write!(out, "{number}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::CommitAnswer;

    #[test]
    fn an_answer_is_written_as_its_shape_says() {
        let none = None;
        for (events, first, duplicate, stage) in [
            (1, Some(0), false, Some("handled:billing")),
            (2, Some(9), true, None),
            (12, Some(i64::MAX as u64 - 12), false, None),
            (2, none, false, None),
        ] {
            let outcome = CommitOutcome {
                commit_id: Uuid::from_u128(0x019c_5555),
                version: first.unwrap_or(1),
                first_sequence_number: first,
                event_ids: (0..events).map(Uuid::from_u128).collect(),
                duplicate,
                stage: stage.map(Into::into),
            };
            let mut written = b"before".to_vec();
            write_commit_answer(&outcome, &mut written);
            let shape = serde_json::to_string(&CommitAnswer::from(outcome)).expect("writes");
            assert_eq!(String::from_utf8_lossy(&written[6..]), shape);
        }
    }
}
