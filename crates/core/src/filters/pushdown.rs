//! The requirements of a filter that the log's indexes can check.

use bson::Bson;

use crate::commit::{valid_id, valid_name};
use crate::{AggregateFilter, ByteString, Condition, Filter, Test};

/// Returns a filter that every event with these types and this condition passes. Other events may pass it too.
pub(super) fn filter_of(types: &[ByteString], condition: Option<&Condition>) -> Filter {
    let Some(condition) = condition else { return Filter { types: types.to_vec(), ..Filter::default() } };
    let types = match types {
        [] => types_of(condition),
        given => given.to_vec(),
    };
    let mut tags = Vec::new();
    required(condition, "tags", &mut tags);
    tags.retain(|tag| valid_id("tags", tag).is_ok());
    tags.sort_unstable();
    tags.dedup();
    Filter { types, tags, aggregate: aggregate_of(condition) }
}

/// Returns the types of which an event must have one. A text that is not a valid name is the type of no event.
fn types_of(condition: &Condition) -> Vec<ByteString> {
    let texts = condition.texts_of("type").unwrap_or_default();
    texts.iter().filter(|text| valid_name("type", text).is_ok()).map(|text| text.as_str().into()).collect()
}

fn aggregate_of(condition: &Condition) -> Option<AggregateFilter> {
    let one = |path: &str| {
        let mut texts = Vec::new();
        required(condition, path, &mut texts);
        texts.into_iter().next()
    };
    let name = one("aggregate.name").filter(|name| valid_name("aggregate", name).is_ok())?;
    Some(AggregateFilter { name, id: one("aggregate.id").filter(|id| valid_id("aggregate", id).is_ok()) })
}

/// Collects the texts that a field must equal, or must contain if it is an array, for the condition to match.
fn required(condition: &Condition, path: &str, texts: &mut Vec<ByteString>) {
    match condition {
        Condition::Field { path: tested, test: Test::Eq(Bson::String(text)) } if tested == path => {
            texts.push(text.as_str().into());
        }
        Condition::And(children) => children.iter().for_each(|child| required(child, path, texts)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_included_event_must_have_is_found_by_the_log_s_indexes() {
        let condition = Condition::and([
            Condition::is_in("type", ["placed", "no name"]),
            Condition::eq("tags", "vip"),
            Condition::eq("aggregate.name", "order"),
            Condition::eq("aggregate.id", "o-1"),
            Condition::gt("data.total", 5),
        ]);
        let filter = filter_of(&[], Some(&condition));
        assert_eq!((filter.types, filter.tags), (vec!["placed".into()], vec!["vip".into()]));
        assert_eq!(filter.aggregate, Some(AggregateFilter { name: "order".into(), id: Some("o-1".into()) }));
        assert_eq!(filter_of(&["paid".into()], Some(&condition)).types, ["paid"]);
    }

    #[test]
    fn what_only_some_included_events_have_narrows_nothing() {
        for condition in [
            Condition::Or(vec![Condition::eq("tags", "vip"), Condition::eq("data.a", 1)]),
            Condition::Nor(vec![Condition::eq("tags", "vip")]),
            Condition::eq("aggregate.name", Bson::Null),
            Condition::eq("aggregate.id", "o-1"),
            Condition::ne("tags", "vip"),
        ] {
            assert!(filter_of(&[], Some(&condition)).is_all(), "{condition:?}");
        }
    }
}
