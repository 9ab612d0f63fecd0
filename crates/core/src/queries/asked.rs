//! Translation of a caller's query into the terms of a store.

use super::{DocumentQuery, Pagination, QuerySource};
use crate::{Code, Condition, DocumentKind, Invalid, Now, Projection, RecordQuery, SortBy};

/// A query in the terms of a store: stored field names, fixed times, and deleted aggregates excluded.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredQuery {
    /// The documents to find.
    pub condition: Condition,
    /// The fields to return.
    pub projection: Projection,
    /// The sort order; documents that compare equal are ordered by `_id`, in the direction of the last field.
    pub sort: Vec<SortBy>,
    /// The number of documents to skip.
    pub skip: u64,
    /// The most documents to return; 0 for none.
    pub limit: u64,
    /// The most bytes of a result.
    pub bytes_max: Option<usize>,
}

impl StoredQuery {
    /// Translates a list query; a `limit` of 0 means all.
    ///
    /// # Errors
    /// `invalid_query`, `invalid_condition`, `invalid_name`.
    pub(super) fn of(source: &QuerySource, query: DocumentQuery, limit: u64, now: &Now) -> Result<Self, Invalid> {
        source.validate()?;
        let kind = source.kind();
        let DocumentQuery { condition, projection, sort, bytes_max } = query;
        let asked =
            RecordQuery { condition, projection, sort, limit: 1, ..RecordQuery::new("") }.resolved(kind, now)?;
        // Checked before anything is added, so that paths in errors refer to the caller's query.
        asked.validate()?;
        if kind == DocumentKind::Commit {
            asked.condition.each_path(&mut |path| answered_of_commits(path, Code::InvalidCondition, "condition"))?;
            for by in &asked.sort {
                answered_of_commits(&by.path, Code::InvalidQuery, "sort")?;
            }
        }
        let limit = if limit == 0 { u64::MAX } else { limit };
        let RecordQuery { condition, projection, sort, .. } = asked;
        let condition = if kind == DocumentKind::Snapshot { condition.guarded() } else { condition };
        Ok(Self { condition, projection, sort, skip: 0, limit, bytes_max })
    }

    /// Translates a query of a page.
    ///
    /// # Errors
    /// `invalid_query` for page 0, or for a page whose offset overflows.
    pub(super) fn on_page(self, page: Pagination) -> Result<Self, Invalid> {
        let invalid = |message: &str| Invalid::new(Code::InvalidQuery, "pagination.index", message);
        let before = page.index.checked_sub(1).ok_or_else(|| invalid("is 0; pages count from 1"))?;
        if page.size == 0 {
            return Ok(Self { limit: if before == 0 { u64::MAX } else { 0 }, ..self });
        }
        let skip = before.checked_mul(page.size).ok_or_else(|| invalid("is beyond every page"))?;
        Ok(Self { skip, limit: page.size, ..self })
    }
}

/// The fields of a commit's `annals` that are returned; the others belong to a backend.
pub(super) const ANSWERED: [&str; 4] = ["commandId", "correlationId", "causationId", "times"];

/// Refuses paths to fields that are not returned: they are internal, and do not exist on every backend.
fn answered_of_commits(path: &str, code: Code, at: &str) -> Result<(), Invalid> {
    let inside = match path.split_once('.') {
        None if path == "annals" => "",
        Some(("annals", inside)) => inside,
        _ => return Ok(()),
    };
    let first = inside.split('.').next().unwrap_or_default();
    if ANSWERED.contains(&first) {
        return Ok(());
    }
    let known = ANSWERED.map(|name| format!("annals.{name}")).join(", ");
    Err(Invalid::new(code, at, format!("field {path:?} is unknown in commits; the fields of annals are {known}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Deletion, Timestamp};

    fn asked(source: &QuerySource, query: DocumentQuery) -> Result<StoredQuery, Invalid> {
        StoredQuery::of(source, query, 0, &Now::utc(Timestamp::from_millis(0)))
    }

    fn snapshots() -> QuerySource {
        QuerySource::Snapshots("order".into())
    }

    fn commits() -> QuerySource {
        QuerySource::Commits("order".into())
    }

    #[test]
    fn names_are_those_of_the_documents_and_what_is_deleted_is_left_out_of_snapshots() {
        let query = |field: &str| {
            DocumentQuery::new(Condition::eq(field, "o-1")).ascending(field).projection(Projection::only([field]))
        };
        let of_snapshots = asked(&snapshots(), query("aggregateId")).expect("it can be asked");
        let guarded = Condition::And(vec![Condition::Deleted(Deletion::Active), Condition::eq("_id", "o-1")]);
        assert_eq!(of_snapshots.condition, guarded);
        assert_eq!((of_snapshots.sort[0].path.as_str(), of_snapshots.projection), ("_id", Projection::only(["_id"])));
        let of_commits = asked(&commits(), query("id")).expect("it can be asked");
        assert_eq!((of_commits.condition, of_commits.limit), (Condition::eq("_id", "o-1"), u64::MAX));
    }

    #[test]
    fn what_is_not_answered_of_commits_cannot_be_asked_for() {
        for path in ["annals", "annals.any", "annals.reserve.key"] {
            let refused = asked(&commits(), Condition::and([Condition::exists(path)]).into()).expect_err(path);
            assert_eq!(refused.code, Code::InvalidCondition);
            let refused = asked(&commits(), DocumentQuery::default().ascending(path)).expect_err(path);
            assert_eq!((refused.code, refused.path.as_str()), (Code::InvalidQuery, "sort"));
            assert!(asked(&snapshots(), Condition::exists(path).into()).is_ok());
        }
        for path in ["annals.correlationId", "annals.times", "annalsx", "body.annals"] {
            assert!(asked(&commits(), Condition::exists(path).into()).is_ok(), "{path}");
        }
    }

    #[test]
    fn pages_count_from_1_and_none_is_beyond_all_numbers() {
        let query = || asked(&commits(), DocumentQuery::default()).expect("it can be asked");
        let page = |index, size| query().on_page(Pagination { index, size }).map(|page| (page.skip, page.limit));
        assert_eq!(page(1, 10), Ok((0, 10)));
        assert_eq!(page(3, 10), Ok((20, 10)));
        assert_eq!(page(1, 0), Ok((0, u64::MAX)));
        assert_eq!(page(2, 0), Ok((0, 0)));
        assert_eq!(page(0, 10).expect_err("there is none").path, "pagination.index");
        assert!(page(u64::MAX, 10).is_err());
    }
}
