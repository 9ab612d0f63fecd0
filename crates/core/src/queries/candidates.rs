//! Narrows a search of a log to the commits that may match a condition.

use bson::Bson;
use bytestring::ByteString;

use crate::{AggregateFilter, Condition, Filter, Test, Version, valid_id, valid_name};

/// A superset of the commits that match a condition; each is then evaluated.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Candidates {
    /// Commits of these aggregates, with versions in the range.
    Aggregates { ids: Vec<ByteString>, from: Version, to: Version },
    /// Commits with events that pass the filter, whose terms the log indexes.
    Events(Filter),
    /// All commits of the name.
    Name,
}

impl Candidates {
    /// Derives the candidates from the requirements that the condition has for every commit.
    pub(super) fn of(name: &ByteString, condition: &Condition) -> Self {
        if let Some(ids) = condition.texts_of("aggregateId") {
            let ids = ids.into_iter().filter(|id| valid_id("aggregateId", id).is_ok()).map(Into::into).collect();
            let (from, to) = versions(condition);
            return Self::Aggregates { ids, from, to };
        }
        let aggregate = Some(AggregateFilter { name: name.clone(), id: None });
        match events_of(condition) {
            Some(Term::Tag(tag)) => Self::Events(Filter { tags: vec![tag], aggregate, ..Filter::default() }),
            Some(Term::Types(types)) => Self::Events(Filter { types, aggregate, ..Filter::default() }),
            None => Self::Name,
        }
    }

    /// Returns whether there are no candidates.
    pub(super) fn is_nowhere(&self) -> bool {
        match self {
            Self::Aggregates { ids, from, to } => ids.is_empty() || from > to,
            // A filter without types and tags would pass every event.
            Self::Events(filter) => filter.types.is_empty() && filter.tags.is_empty(),
            Self::Name => false,
        }
    }
}

/// A requirement that at least one event of every matching commit meets.
enum Term {
    Tag(ByteString),
    Types(Vec<ByteString>),
}

fn events_of(condition: &Condition) -> Option<Term> {
    match condition {
        Condition::And(children) => {
            let mut terms: Vec<Term> = children.iter().filter_map(events_of).collect();
            let tag = terms.iter().position(|term| matches!(term, Term::Tag(_)));
            (!terms.is_empty()).then(|| terms.swap_remove(tag.unwrap_or(0)))
        }
        Condition::Or(children) => {
            let mut all = Vec::new();
            for child in children {
                match events_of(child)? {
                    Term::Types(types) => all.extend(types),
                    Term::Tag(_) => return None,
                }
            }
            Some(Term::Types(all))
        }
        Condition::Field { path, test: Test::ElemMatch(inner) } if path == "body" => events_of_one(inner),
        Condition::Field { path, test } => term(path.strip_prefix("body.")?, test),
        _ => None,
    }
}

/// Derives the requirement from a condition on one event.
fn events_of_one(condition: &Condition) -> Option<Term> {
    match condition {
        Condition::And(children) => children.iter().find_map(events_of_one),
        Condition::Field { path, test } => term(path, test),
        _ => None,
    }
}

fn term(field: &str, test: &Test) -> Option<Term> {
    let values = match test {
        Test::Eq(value) => std::slice::from_ref(value),
        Test::In(values) if field != "tags" => values,
        Test::AllIn(values) => values.get(..1)?,
        _ => return None,
    };
    // The log has no terms for null or a list: an event without tags has null.
    if values.iter().any(|value| !matches!(value, Bson::String(_))) {
        return None;
    }
    let texts = values.iter().filter_map(Bson::as_str);
    match field {
        "name" | "bodyType" => {
            Some(Term::Types(texts.filter(|name| valid_name("", name).is_ok()).map(Into::into).collect()))
        }
        "tags" => texts.filter(|tag| valid_id("", tag).is_ok()).map(|tag| Term::Tag(tag.into())).next(),
        _ => None,
    }
}

/// Returns a range that includes every version the condition admits.
fn versions(condition: &Condition) -> (Version, Version) {
    let whole = |value: &Bson| match value {
        Bson::Int32(number) => Some(i64::from(*number)),
        Bson::Int64(number) => Some(*number),
        _ => None,
    };
    let from = |value: &Bson| whole(value).map_or(0, |number| number.max(0).cast_unsigned());
    // No commit has version 0, so a range up to it is empty.
    let to = |value: &Bson| whole(value).map_or(Version::MAX, |number| number.max(0).cast_unsigned());
    match condition {
        Condition::And(children) => {
            let both = |(from, to): (Version, Version), child| {
                let (its_from, its_to) = versions(child);
                (from.max(its_from), to.min(its_to))
            };
            children.iter().fold((1, Version::MAX), both)
        }
        Condition::Field { path, test } if path == "version" => match test {
            Test::Eq(value) => (from(value).max(1), to(value)),
            Test::Gt(value) | Test::Gte(value) => (from(value).max(1), Version::MAX),
            Test::Lt(value) | Test::Lte(value) => (1, to(value)),
            Test::Between(low, high) => (from(low).max(1), to(high)),
            _ => (1, Version::MAX),
        },
        _ => (1, Version::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(condition: &Condition) -> Candidates {
        Candidates::of(&"order".into(), condition)
    }

    fn events(types: &[&str], tags: &[&str]) -> Candidates {
        let texts = |texts: &[&str]| texts.iter().map(|text| ByteString::from(*text)).collect();
        let aggregate = Some(AggregateFilter { name: "order".into(), id: None });
        Candidates::Events(Filter { types: texts(types), tags: texts(tags), aggregate })
    }

    #[test]
    fn aggregates_are_looked_up_with_the_versions_that_are_asked_for() {
        let aggregates = |ids: &[&str], from, to| Candidates::Aggregates {
            ids: ids.iter().map(|id| ByteString::from(*id)).collect(),
            from,
            to,
        };
        let one = Condition::aggregate_id("o-1");
        assert_eq!(of(&one), aggregates(&["o-1"], 1, Version::MAX));
        assert_eq!(of(&Condition::is_in("aggregateId", ["b", "a", "", "b"])), aggregates(&["a", "b"], 1, Version::MAX));
        for (version, from, to) in [
            (Condition::eq("version", 7), 7, 7),
            (Condition::gt("version", 7), 7, Version::MAX),
            (Condition::between("version", 2_i64, 5), 2, 5),
            (Condition::lt("version", -1), 1, 0),
            (Condition::eq("version", 7.5), 1, Version::MAX),
            (Condition::ne("version", 7), 1, Version::MAX),
        ] {
            assert_eq!(of(&Condition::And(vec![version, one.clone()])), aggregates(&["o-1"], from, to));
        }
        assert!(of(&Condition::eq("aggregateId", 5)).is_nowhere());
        assert!(of(&Condition::And(vec![one.clone(), Condition::lt("version", 0)])).is_nowhere());
        assert!(!of(&one).is_nowhere());
    }

    #[test]
    fn types_and_tags_are_looked_up_where_every_commit_must_have_one() {
        let placed = Condition::eq("body.name", "placed");
        assert_eq!(of(&placed), events(&["placed"], &[]));
        assert_eq!(of(&Condition::is_in("body.bodyType", ["a", "b"])), events(&["a", "b"], &[]));
        assert_eq!(
            of(&Condition::Or(vec![placed.clone(), Condition::eq("body.name", "paid")])),
            events(&["placed", "paid"], &[])
        );
        assert_eq!(of(&Condition::And(vec![placed.clone(), Condition::eq("body.tags", "t")])), events(&[], &["t"]));
        assert_eq!(of(&Condition::all_in("body.tags", ["t", "u"])), events(&[], &["t"]));
        let inside =
            Condition::elem_match("body", Condition::And(vec![Condition::eq("name", "a"), Condition::gt("body.n", 5)]));
        assert_eq!(of(&inside), events(&["a"], &[]));
        assert!(of(&Condition::eq("body.name", "no name!")).is_nowhere());
        for open in [
            Condition::All,
            Condition::ne("body.name", "a"),
            Condition::Nor(vec![placed.clone()]),
            Condition::is_null("body.tags"),
            Condition::eq("body.tags", vec!["t"]),
            Condition::is_in("body.tags", ["t", "u"]),
            Condition::Or(vec![placed.clone(), Condition::eq("ownerId", "eva")]),
            Condition::elem_match("body", Condition::Or(vec![Condition::eq("name", "a")])),
            Condition::eq("tenantId", "t"),
        ] {
            assert_eq!(of(&open), Candidates::Name, "{open:?}");
        }
    }
}
