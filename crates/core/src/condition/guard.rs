//! Cost limits of queries from outside.

use bson::{Bson, Document};

use super::{Condition, Fragment, Test};
use crate::{Code, Invalid};

/// The limits of queries over HTTP. Programs that use the library directly are not limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueryGuard {
    /// The maximum nesting of conditions.
    pub depth_max: usize,
    /// The maximum number of parts of a condition.
    pub nodes_max: usize,
    /// The maximum number of values of one operator, and of all `ALL_IN` of a condition together.
    pub values_max: usize,
    /// The maximum number of entries of a list, which must be at least 1. Only without a limit ([`u64::MAX`]), 0 means all.
    pub list_max: u64,
    /// The maximum number of entries of a page, with the same rule.
    pub page_max: u64,
    /// How far pages reach: the maximum of page number times page size.
    pub reach_max: u64,
    /// The maximum size of the documents that are returned at once or held for sorting, in bytes.
    pub answer_bytes_max: usize,
    /// Whether MongoDB filter documents are accepted. Filters that run code never are.
    pub raw: bool,
    /// Whether operators that no index serves are accepted: NE, NOT_IN, NOR, NULL, NOT_NULL, CONTAINS, ENDS_WITH, EXISTS with false, and
    /// STARTS_WITH with an empty string or ignoring case. The same goes for conditions on commits that would read every commit of a name.
    pub expensive: bool,
    /// Whether pages and counts may select every document.
    pub everything: bool,
}

impl Default for QueryGuard {
    /// Returns limits that are safe for a public API.
    fn default() -> Self {
        Self {
            depth_max: 16,
            nodes_max: 64,
            values_max: 1_000,
            list_max: 1_000,
            page_max: 100,
            reach_max: 10_000,
            answer_bytes_max: 64 * 1024 * 1024,
            raw: false,
            expensive: false,
            everything: false,
        }
    }
}

/// Returns whether a number of entries is allowed; 0 means all.
fn within(number: u64, most: u64) -> bool {
    most == u64::MAX || (1..=most).contains(&number)
}

/// What has been counted so far.
struct Cost<'g> {
    guard: &'g QueryGuard,
    nodes: usize,
    /// The number of `ALL_IN` values so far. Each is searched separately in a document, while those of `IN` are looked up together.
    sought: usize,
}

impl QueryGuard {
    /// Returns limits for development: accepts everything that the store accepts, except for the limit on bytes.
    pub fn open() -> Self {
        Self {
            depth_max: usize::MAX,
            nodes_max: usize::MAX,
            values_max: usize::MAX,
            list_max: u64::MAX,
            page_max: u64::MAX,
            reach_max: u64::MAX,
            raw: true,
            expensive: true,
            everything: true,
            ..Self::default()
        }
    }

    /// Checks a condition.
    ///
    /// # Errors
    /// `query_too_deep`, `query_too_large`, `query_too_many_values`, `raw_not_allowed`, `query_too_expensive`.
    pub fn check(&self, condition: &Condition) -> Result<(), Invalid> {
        Cost { guard: self, nodes: 0, sought: 0 }.condition(condition, "condition", 1)
    }

    /// Checks a condition that is evaluated against one record, so that operators without an index cost no more than others.
    ///
    /// # Errors
    /// As [`check`](Self::check), except for `query_too_expensive`.
    pub fn check_one(&self, condition: &Condition) -> Result<(), Invalid> {
        Self { expensive: true, ..*self }.check(condition)
    }

    /// Checks the condition of a page or a count.
    ///
    /// # Errors
    /// As [`check`](Self::check), and `query_of_everything`.
    pub fn check_many(&self, condition: &Condition) -> Result<(), Invalid> {
        self.check(condition)?;
        if !self.everything && means_everything(condition) {
            let message = "matches every document; add a selective condition".to_owned();
            return Err(Invalid::new(Code::QueryOfEverything, "condition", message));
        }
        Ok(())
    }

    /// Checks the length of a list.
    ///
    /// # Errors
    /// `page_too_large`, also for 0, which would mean all.
    pub fn check_limit(&self, limit: u64) -> Result<(), Invalid> {
        if within(limit, self.list_max) {
            return Ok(());
        }
        let message = format!("is {limit}; 1 to {} are allowed", self.list_max);
        Err(Invalid::new(Code::PageTooLarge, "limit", message))
    }

    /// Checks the number of a page, from 1, and its size.
    ///
    /// # Errors
    /// `page_too_large`, `page_too_far`.
    pub fn check_page(&self, index: u64, size: u64) -> Result<(), Invalid> {
        if !within(size, self.page_max) {
            let message = format!("is {size}; 1 to {} are allowed", self.page_max);
            return Err(Invalid::new(Code::PageTooLarge, "pagination.size", message));
        }
        if index.saturating_mul(size) > self.reach_max {
            let message = format!("multiplied by the size is more than {}; narrow the condition", self.reach_max);
            return Err(Invalid::new(Code::PageTooFar, "pagination.index", message));
        }
        Ok(())
    }

    /// Checks whether a query may read all commits of a name.
    ///
    /// # Errors
    /// `query_too_expensive`.
    pub fn check_every_commit(&self, reads_every_commit: bool) -> Result<(), Invalid> {
        if self.expensive || !reads_every_commit {
            return Ok(());
        }
        let message = "is not selective: every commit of the aggregate name would be read, which is not allowed here; \
                       name an aggregateId, or a type (body.name) or tag (body.tags) if the store indexes them";
        Err(Invalid::new(Code::QueryTooExpensive, "condition", message))
    }

    /// Checks only whether MongoDB filter documents are accepted.
    ///
    /// # Errors
    /// `raw_not_allowed`.
    pub fn check_raw(&self, condition: &Condition) -> Result<(), Invalid> {
        match condition {
            Condition::And(children) | Condition::Or(children) | Condition::Nor(children) => {
                children.iter().try_for_each(|child| self.check_raw(child))
            }
            Condition::Field { test: Test::ElemMatch(inner), .. } => self.check_raw(inner),
            Condition::Raw(filter) => self.raw(filter, "condition"),
            _ => Ok(()),
        }
    }

    fn raw(&self, filter: &Document, at: &str) -> Result<(), Invalid> {
        let refused = |message: String| Err(Invalid::new(Code::RawNotAllowed, at, message));
        if !self.raw {
            return refused("RAW is not allowed here; use the other operators".to_owned());
        }
        match code_in(filter) {
            Some(name) => refused(format!("{name} runs code, so it is never accepted from outside")),
            None => Ok(()),
        }
    }
}

impl Cost<'_> {
    fn condition(&mut self, condition: &Condition, at: &str, depth: usize) -> Result<(), Invalid> {
        let refused = |code, message: String| Err(Invalid::new(code, at, message));
        let guard = self.guard;
        self.nodes += 1;
        if depth > guard.depth_max {
            return refused(Code::QueryTooDeep, format!("is nested deeper than {}; flatten it", guard.depth_max));
        }
        if self.nodes > guard.nodes_max {
            let message = format!(
                "exceeds the limit of {} parts; use fewer, for example IN for many values of a field",
                guard.nodes_max
            );
            return refused(Code::QueryTooLarge, message);
        }
        if !guard.expensive
            && let Some(operator) = expensive(condition)
        {
            let message = format!(
                "{operator} cannot use an index, so it is not allowed here; use another operator, such as EQ or IN"
            );
            return refused(Code::QueryTooExpensive, message);
        }
        match condition {
            Condition::And(children) | Condition::Or(children) | Condition::Nor(children) => children
                .iter()
                .enumerate()
                .try_for_each(|(n, child)| self.condition(child, &format!("{at}.children[{n}]"), depth + 1)),
            Condition::Field { test: Test::ElemMatch(inner), .. } => {
                self.condition(inner, &format!("{at}.children[0]"), depth + 1)
            }
            Condition::Field { test: Test::AllIn(values), .. } => {
                self.sought = self.sought.saturating_add(values.len());
                if self.sought <= guard.values_max {
                    return Ok(());
                }
                refused(
                    Code::QueryTooManyValues,
                    format!(
                        "exceeds the limit of {} values in total for ALL_IN; split it into several queries",
                        guard.values_max
                    ),
                )
            }
            Condition::Field { test: Test::In(values) | Test::NotIn(values), .. }
                if values.len() > guard.values_max =>
            {
                refused(
                    Code::QueryTooManyValues,
                    format!("has more than {} values; split it into several queries", guard.values_max),
                )
            }
            Condition::Raw(filter) => guard.raw(filter, at),
            _ => Ok(()),
        }
    }
}

/// Returns the operator of a condition, if no index serves it.
fn expensive(condition: &Condition) -> Option<&'static str> {
    let Condition::Field { test, .. } = condition else {
        return matches!(condition, Condition::Nor(_)).then_some("NOR");
    };
    match test {
        Test::Ne(Bson::Null) => Some("NOT_NULL"),
        Test::Ne(_) => Some("NE"),
        Test::NotIn(_) => Some("NOT_IN"),
        Test::Eq(Bson::Null) => Some("NULL"),
        Test::Contains(_) => Some("CONTAINS"),
        Test::EndsWith(_) => Some("ENDS_WITH"),
        Test::Exists(false) => Some("EXISTS with false"),
        Test::StartsWith(Fragment { ignore_case: true, .. }) => Some("STARTS_WITH ignoring case"),
        Test::StartsWith(Fragment { text, .. }) if text.is_empty() => Some("STARTS_WITH with an empty value"),
        _ => None,
    }
}

/// Returns whether a condition excludes no document, apart from deleted ones.
fn means_everything(condition: &Condition) -> bool {
    match condition {
        Condition::All | Condition::Deleted(_) => true,
        Condition::And(children) => children.iter().all(means_everything),
        Condition::Or(children) => children.iter().any(means_everything),
        Condition::Raw(filter) => filter.is_empty(),
        _ => false,
    }
}

/// Returns an operator that runs code, anywhere in a filter document.
fn code_in(filter: &Document) -> Option<&str> {
    filter.iter().find_map(|(name, value)| match name.as_str() {
        "$where" | "$function" | "$accumulator" => Some(name.as_str()),
        _ => code_in_value(value),
    })
}

fn code_in_value(value: &Bson) -> Option<&str> {
    match value {
        Bson::Document(inner) => code_in(inner),
        Bson::Array(values) => values.iter().find_map(code_in_value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;
    use crate::Deletion;

    #[track_caller]
    fn refused(checked: Result<(), Invalid>, code: Code) {
        assert_eq!(checked.expect_err("it is refused").code, code);
    }

    #[test]
    fn each_guard_has_its_own_error() {
        let guard = QueryGuard::default();
        let cheap = Condition::and([Condition::eq("a", 1), Condition::starts_with("b", "x"), Condition::exists("c")]);
        assert_eq!(guard.check_many(&cheap), Ok(()));
        let deep = (0..16).fold(Condition::eq("a", 1), |inner, _| Condition::Or(vec![inner]));
        refused(guard.check(&deep), Code::QueryTooDeep);
        let many = || (0..64).map(|n| Condition::eq("a", n));
        refused(guard.check(&Condition::or(many())), Code::QueryTooLarge);
        assert_eq!(guard.check(&Condition::or(many().take(63))), Ok(()));
        refused(guard.check(&Condition::is_in("a", 0..1_001)), Code::QueryTooManyValues);
        refused(guard.check(&Condition::raw(doc! { "a": 1 })), Code::RawNotAllowed);
        refused(guard.check_raw(&Condition::elem_match("a", Condition::raw(doc! {}))), Code::RawNotAllowed);
        for everything in [
            Condition::All,
            Condition::deleted(Deletion::All),
            Condition::And(vec![Condition::All, Condition::deleted(Deletion::Active)]),
            Condition::or([Condition::eq("a", 1), Condition::All]),
        ] {
            refused(guard.check_many(&everything), Code::QueryOfEverything);
            assert_eq!(guard.check(&everything), Ok(()));
        }
        refused(guard.check_limit(0), Code::PageTooLarge);
        refused(guard.check_limit(1_001), Code::PageTooLarge);
        refused(guard.check_page(1, 101), Code::PageTooLarge);
        refused(guard.check_page(101, 100), Code::PageTooFar);
        refused(guard.check_page(u64::MAX, 100), Code::PageTooFar);
        assert_eq!((guard.check_limit(1_000), guard.check_page(100, 100)), (Ok(()), Ok(())));
        refused(guard.check_every_commit(true), Code::QueryTooExpensive);
        assert_eq!(guard.check_every_commit(false), Ok(()));
        let open = QueryGuard::open();
        assert_eq!(
            (open.check_limit(0), open.check_page(u64::MAX, 0), open.check_every_commit(true)),
            (Ok(()), Ok(()), Ok(()))
        );
    }

    #[test]
    fn the_values_of_all_all_in_count_together() {
        let guard = QueryGuard::default();
        let each = |most: i32| Condition::and([Condition::all_in("a", 0..500), Condition::all_in("b", 0..most)]);
        assert_eq!(guard.check(&each(500)), Ok(()));
        refused(guard.check(&each(501)), Code::QueryTooManyValues);
        refused(guard.check(&Condition::all_in("a", 0..1_001)), Code::QueryTooManyValues);
        assert_eq!(QueryGuard::open().check(&each(501)), Ok(()));
        let listed = Condition::and([Condition::is_in("a", 0..1_000), Condition::is_in("b", 0..1_000)]);
        assert_eq!(guard.check(&listed), Ok(()), "those of IN count for themselves");
    }

    #[test]
    fn what_no_index_serves_is_not_allowed_unless_it_is_said() {
        for expensive in [
            Condition::ne("a", 1),
            Condition::not_in("a", [1]),
            Condition::nor([Condition::eq("a", 1)]),
            Condition::is_null("a"),
            Condition::not_null("a"),
            Condition::contains("a", "x"),
            Condition::ends_with("a", "x"),
            Condition::missing("a"),
            Condition::starts_with("a", ""),
            Condition::starts_with("a", Fragment::new("x").ignoring_case()),
            Condition::or([Condition::elem_match("a", Condition::ne("b", 1))]),
        ] {
            refused(QueryGuard::default().check(&expensive), Code::QueryTooExpensive);
            assert_eq!(QueryGuard::open().check(&expensive), Ok(()));
        }
    }

    #[test]
    fn code_is_never_taken() {
        assert_eq!(QueryGuard::open().check(&Condition::raw(doc! { "a": { "$size": 1 } })), Ok(()));
        for code in [doc! { "$where": "1" }, doc! { "$or": [{ "$expr": { "$function": {} } }] }] {
            refused(QueryGuard::open().check_raw(&Condition::raw(code)), Code::RawNotAllowed);
        }
    }
}
