//! Tells whether an index holds the records of a query in the order of its sort, but for the order by `_id` among equal ones.
//!
//! This decides what is asked first, never what is found: the server chooses the index itself, and in_order.rs checks what comes.

use annals_core::order::Direction;
use annals_core::{Collection, Condition, Index, OrderedIndex, SortBy, Test};

use super::behind::is_comparable;

/// Returns whether an ordered index serves a sort without `_id`, and none serves it with `_id`. An index on the fields that the condition
/// wants equal to one value, followed by those of the sort, does. One that looks up by fewer fields than another is left out, because
/// sorting the few records that the other finds is cheaper.
pub(super) fn is_served(collection: &Collection, condition: &Condition, sort: &[SortBy]) -> bool {
    let parts = parts_of(condition);
    let equal: Vec<&str> = parts.iter().filter_map(|part| equal_path(part)).collect();
    let Some(last) = sort.last() else { return false };
    if equal.contains(&"_id") || sort.iter().any(|by| by.path == "_id") || condition.text_search().is_some() {
        return false;
    }
    let fields: Vec<_> = sort.iter().map(|by| (by.path.as_str(), by.direction)).collect();
    let mut with_id = fields.clone();
    with_id.push(("_id", last.direction));
    let most = collection.indexes.iter().map(|index| looked_up(&index.fields(), &equal)).max().unwrap_or(0);
    let holding: Vec<_> = collection
        .indexes
        .iter()
        .filter_map(|index| match index {
            Index::Ordered(ordered) if holds_all(ordered, &parts, &equal) => Some(index.fields()),
            _ => None,
        })
        .collect();
    let serves = |sort: &[(&str, Direction)]| {
        holding.iter().any(|index| looked_up(index, &equal) >= most && runs(index, &equal, sort))
    };
    serves(&fields) && !serves(&with_id)
}

/// Returns the parts of a condition that must all hold.
fn parts_of(condition: &Condition) -> Vec<&Condition> {
    match condition {
        Condition::All => Vec::new(),
        Condition::And(children) => children.iter().flat_map(parts_of).collect(),
        other => vec![other],
    }
}

/// Returns the path of a field that must have one value.
fn equal_path(part: &Condition) -> Option<&str> {
    match part {
        Condition::Field { path, test: Test::Eq(value) } if is_comparable(value) => Some(path),
        _ => None,
    }
}

/// Returns the number of first fields of an index that are equal to one value each.
fn looked_up(index: &[(&str, Direction)], equal: &[&str]) -> usize {
    index.iter().take_while(|(path, _)| equal.contains(path)).count()
}

/// Returns whether every match has an entry, and the server can see that it has.
fn holds_all(index: &OrderedIndex, parts: &[&Condition], equal: &[&str]) -> bool {
    let partial = index.partial.as_ref().map(parts_of).unwrap_or_default();
    let admitted = partial.iter().all(|part| parts.iter().any(|known| known.is_same(part)));
    admitted && (!index.sparse || index.fields.iter().any(|(path, _)| equal.contains(&path.as_str())))
}

/// Returns whether entries that are equal in the fields looked up lie in the order of the sort, or in the opposite one.
fn runs(index: &[(&str, Direction)], equal: &[&str], sort: &[(&str, Direction)]) -> bool {
    let (same, mut rest) = index.split_at(looked_up(index, equal));
    let mut against = None;
    for (path, direction) in sort {
        if same.iter().any(|(known, _)| known == path) {
            continue;
        }
        let Some(((field, way), further)) = rest.split_first() else { return false };
        let opposite = way != direction;
        if field != path || against.is_some_and(|against| against != opposite) {
            return false;
        }
        against = Some(opposite);
        rest = further;
    }
    against.is_some()
}

#[cfg(test)]
mod tests {
    use annals_core::bson::Bson;
    use annals_core::order::Direction::{Ascending, Descending};

    use super::*;

    fn sort(fields: &[(&str, Direction)]) -> Vec<SortBy> {
        fields.iter().map(|(path, direction)| SortBy { path: (*path).to_owned(), direction: *direction }).collect()
    }

    fn served(index: impl Into<Index>, condition: &Condition, fields: &[(&str, Direction)]) -> bool {
        is_served(&Collection::new("things").index(index), condition, &sort(fields))
    }

    fn lane_due() -> OrderedIndex {
        Index::ordered([("lane", Ascending), ("due", Ascending)])
    }

    fn in_lane() -> Condition {
        Condition::And(vec![Condition::eq("lane", "a"), Condition::And(vec![Condition::gte("due", 1)])])
    }

    #[test]
    fn what_is_equal_and_then_the_sort_is_served_in_both_directions() {
        for way in [Ascending, Descending] {
            assert!(served(lane_due(), &in_lane(), &[("due", way)]));
            assert!(served(lane_due(), &in_lane(), &[("lane", Descending), ("due", way)]));
            assert!(served(lane_due(), &in_lane(), &[("due", way), ("lane", Ascending)]));
            assert!(served(Index::on("due"), &Condition::All, &[("due", way)]));
            assert!(served(lane_due(), &Condition::All, &[("lane", way), ("due", way)]));
        }
        assert!(served(
            Index::ordered([("a", Ascending), ("b", Descending)]),
            &Condition::All,
            &[("a", Descending), ("b", Ascending)]
        ));
    }

    #[test]
    fn another_order_is_not_served() {
        assert!(!served(lane_due(), &Condition::All, &[("due", Ascending)]));
        assert!(!served(lane_due(), &Condition::All, &[("lane", Ascending), ("due", Descending)]));
        assert!(!served(lane_due(), &in_lane(), &[("due", Ascending), ("n", Ascending)]));
        assert!(!served(lane_due(), &in_lane(), &[("n", Ascending)]));
        assert!(!served(lane_due(), &in_lane(), &[("lane", Ascending)]), "all are equal");
        assert!(!served(lane_due(), &in_lane(), &[]));
        assert!(!served(lane_due(), &in_lane(), &[("due", Ascending), ("_id", Ascending)]));
        for several in [
            Condition::is_in("lane", ["a", "b"]),
            Condition::Or(vec![Condition::eq("lane", "a")]),
            Condition::eq("lane", Bson::Null),
            Condition::eq("lane", vec![Bson::from("a")]),
            Condition::eq("lane", f64::NAN),
        ] {
            assert!(!served(lane_due(), &several, &[("due", Ascending)]), "{several:?}");
        }
    }

    #[test]
    fn an_index_that_the_server_sorts_by_completely_is_left_to_it() {
        let whole = Index::ordered([("lane", Ascending), ("due", Ascending), ("_id", Ascending)]);
        assert!(!served(whole.clone(), &in_lane(), &[("due", Ascending)]));
        let mixed = Index::ordered([("lane", Ascending), ("due", Ascending), ("_id", Descending)]);
        assert!(served(mixed, &in_lane(), &[("due", Ascending)]));
        let both = Collection::new("things").index(lane_due()).index(whole);
        assert!(!is_served(&both, &in_lane(), &sort(&[("due", Descending)])));
    }

    #[test]
    fn an_index_that_may_lack_matches_or_looks_up_by_less_is_not_used() {
        let by_due = [("due", Ascending)];
        assert!(served(lane_due().sparse(), &in_lane(), &by_due));
        assert!(!served(Index::on("due").sparse(), &Condition::gte("due", 1), &by_due));
        assert!(served(lane_due().partial(Condition::gte("due", 1)), &in_lane(), &by_due));
        assert!(!served(lane_due().partial(Condition::gte("due", 2)), &in_lane(), &by_due));
        assert!(!served(Index::hashed("due"), &Condition::All, &by_due));
        let other = Collection::new("things")
            .index(lane_due())
            .index(Index::ordered([("lane", Ascending), ("key", Ascending)]));
        assert!(is_served(&other, &in_lane(), &sort(&by_due)));
        let one = Condition::And(vec![in_lane(), Condition::eq("key", 7)]);
        assert!(!is_served(&other, &one, &sort(&by_due)));
        let words = Condition::And(vec![in_lane(), Condition::matching_text("x")]);
        assert!(!is_served(&other, &words, &sort(&by_due)));
    }
}
