//! Append conditions: events that the log must not hold for a commit to be accepted, following the specification of Dynamic Consistency
//! Boundaries.

use bytestring::ByteString;

use crate::{Code, EventRef, Invalid, RecordedEvent, SequenceNumber, limits};

/// A commit's condition on events that the log must *not* hold: it fails if any event after `after` matches any of the patterns.
///
/// It protects a decision that is based on a filtered read. Read with the same types and tags, and remember the number of the last event
/// seen *in the log* (a page's `next` minus one). Then decide, and commit with that number as `after`. Nothing else is locked, and commits
/// that match none of the patterns never conflict.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AppendCondition {
    /// The patterns, 1 to 64; a match of any of them fails the condition.
    pub fail_if: Vec<EventPattern>,
    /// Events up to and including this number are known to the caller and ignored; `None` checks the whole log.
    pub after: Option<SequenceNumber>,
}

/// Describes events: one of the types and all of the tags.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with types and tags")]
pub struct EventPattern {
    /// The event has one of these types; empty means any type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<ByteString>,
    /// The event has all of these tags; empty means any tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<ByteString>,
}

impl EventPattern {
    /// Returns whether an event with this type and these tags matches.
    pub fn matches(&self, event_type: &ByteString, tags: &[ByteString]) -> bool {
        (self.types.is_empty() || self.types.contains(event_type)) && self.tags.iter().all(|tag| tags.contains(tag))
    }
}

impl EventPattern {
    /// Returns whether a borrowed event matches.
    pub fn matches_ref(&self, event: &EventRef<'_>) -> bool {
        (self.types.is_empty() || self.types.iter().any(|wanted| **wanted == *event.event_type))
            && self.tags.iter().all(|wanted| event.tags.iter().any(|tag| **wanted == **tag))
    }
}

impl AppendCondition {
    /// Returns the sequence number of the first event that is checked.
    pub fn from(&self) -> SequenceNumber {
        self.after.map_or(0, |after| after.saturating_add(1))
    }

    /// Returns the index of the first pattern that this event matches, or `None`.
    pub fn failed_by(&self, event: &RecordedEvent) -> Option<usize> {
        let counts = event.sequence_number >= self.from();
        counts.then(|| self.fail_if.iter().position(|it| it.matches(&event.event_type, &event.tags))).flatten()
    }

    /// Checks the patterns.
    ///
    /// # Errors
    /// `invalid_append_condition` if there are no patterns or too many, or if a pattern names too many types or tags, or an invalid one.
    pub fn validate(&self) -> Result<(), Invalid> {
        let invalid = |path: String, message: String| Err(Invalid::new(Code::InvalidAppendCondition, path, message));
        let count = self.fail_if.len();
        if count == 0 || count > limits::PATTERNS_MAX {
            let message = format!("holds {count} patterns; a condition has 1 to {}", limits::PATTERNS_MAX);
            return invalid("append_condition.fail_if".to_owned(), message);
        }
        for (n, pattern) in self.fail_if.iter().enumerate() {
            let path = |field: &str| format!("append_condition.fail_if[{n}].{field}");
            for (field, given) in [("types", pattern.types.len()), ("tags", pattern.tags.len())] {
                if given > limits::TAGS_MAX {
                    return invalid(
                        path(field),
                        format!("have {given} entries; at most {} are allowed", limits::TAGS_MAX),
                    );
                }
            }
            // A condition can have thousands of types and tags, so the path is only built for the one at fault.
            let named = pattern.types.iter().try_for_each(|name| crate::commit::valid_name("types", name));
            let tagged = pattern.tags.iter().try_for_each(|tag| crate::valid_id("tags", tag));
            if let Err(fault) = named.and(tagged) {
                return invalid(path(&fault.path), fault.message);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(types: &[&str], tags: &[&str]) -> EventPattern {
        let texts = |texts: &[&str]| texts.iter().map(|text| ByteString::from(*text)).collect();
        EventPattern { types: texts(types), tags: texts(tags) }
    }

    #[test]
    fn a_pattern_takes_any_of_its_types_and_all_of_its_tags() {
        let tags = ["a".into(), "b".into()];
        assert!(pattern(&["x", "y"], &["a"]).matches(&"y".into(), &tags));
        assert!(pattern(&[], &["a", "b"]).matches(&"z".into(), &tags));
        assert!(pattern(&[], &[]).matches(&"z".into(), &[]));
        assert!(!pattern(&["x"], &["a"]).matches(&"y".into(), &tags));
        assert!(!pattern(&["x"], &["a", "c"]).matches(&"x".into(), &tags));
    }

    #[test]
    fn a_pattern_that_no_event_can_match_is_refused_with_its_path() {
        let refused = |fail_if: Vec<EventPattern>| {
            let invalid = AppendCondition { fail_if, after: None }.validate().expect_err("must be refused");
            assert_eq!(invalid.code, Code::InvalidAppendCondition);
            invalid.path
        };
        assert_eq!(refused(vec![]), "append_condition.fail_if");
        assert_eq!(refused(vec![pattern(&["x"], &[]); 65]), "append_condition.fail_if");
        assert_eq!(refused(vec![pattern(&["x"], &[]), pattern(&["a b"], &[])]), "append_condition.fail_if[1].types");
        assert_eq!(refused(vec![pattern(&[], &[""])]), "append_condition.fail_if[0].tags");
        assert_eq!(refused(vec![pattern(&[], &["t"; 65])]), "append_condition.fail_if[0].tags");
        assert_eq!(AppendCondition { fail_if: vec![pattern(&[], &[])], after: Some(7) }.validate(), Ok(()));
    }
}
