//! Constructors of conditions.

use bson::{Bson, Document};

use super::{Condition, Days, Deletion, Fragment, Test, TimeOfDay, Window};

macro_rules! field_tests {
    ($($(#[$doc:meta])* $name:ident $test:ident)+) => {
        $($(#[$doc])*
        pub fn $name(path: impl Into<String>, value: impl Into<Bson>) -> Self {
            Self::field(path, Test::$test(value.into()))
        })+
    };
}

impl Condition {
    /// Returns whether the two conditions are identical. `==` is not enough: it ignores the order of fields in values that are documents,
    /// but that order decides whether a record matches.
    pub fn is_same(&self, other: &Self) -> bool {
        self == other && serde_json::to_vec(self).ok() == serde_json::to_vec(other).ok()
    }

    /// Matches if a field passes a test.
    pub fn field(path: impl Into<String>, test: Test) -> Self {
        Self::Field { path: path.into(), test }
    }

    field_tests! {
        /// Matches if the field equals the value; null equals a missing field.
        eq Eq
        /// Matches if the field does not equal the value.
        ne Ne
        /// Matches if the field is greater than the value.
        gt Gt
        /// Matches if the field is greater than or equal to the value.
        gte Gte
        /// Matches if the field is less than the value.
        lt Lt
        /// Matches if the field is less than or equal to the value.
        lte Lte
    }

    /// Matches if the field equals one of the values.
    pub fn is_in<V: Into<Bson>>(path: impl Into<String>, values: impl IntoIterator<Item = V>) -> Self {
        Self::field(path, Test::In(values.into_iter().map(Into::into).collect()))
    }

    /// Matches if the field equals none of the values.
    pub fn not_in<V: Into<Bson>>(path: impl Into<String>, values: impl IntoIterator<Item = V>) -> Self {
        Self::field(path, Test::NotIn(values.into_iter().map(Into::into).collect()))
    }

    /// Matches if the field is between `low` and `high`, both included.
    pub fn between(path: impl Into<String>, low: impl Into<Bson>, high: impl Into<Bson>) -> Self {
        Self::field(path, Test::Between(low.into(), high.into()))
    }

    /// Matches if the field exists.
    pub fn exists(path: impl Into<String>) -> Self {
        Self::field(path, Test::Exists(true))
    }

    /// Matches if the field does not exist.
    pub fn missing(path: impl Into<String>) -> Self {
        Self::field(path, Test::Exists(false))
    }

    /// Matches if all of these match. A single condition is returned unchanged; an empty list matches every document.
    pub fn and(conditions: impl IntoIterator<Item = Condition>) -> Self {
        let mut all: Vec<_> = conditions.into_iter().filter(|condition| *condition != Self::All).collect();
        match all.pop() {
            None => Self::All,
            Some(only) if all.is_empty() => only,
            Some(last) => {
                all.push(last);
                Self::And(all)
            }
        }
    }

    /// Matches if at least one of these matches.
    pub fn or(conditions: impl IntoIterator<Item = Condition>) -> Self {
        Self::Or(conditions.into_iter().collect())
    }

    /// Matches if none of these matches.
    pub fn nor(conditions: impl IntoIterator<Item = Condition>) -> Self {
        Self::Nor(conditions.into_iter().collect())
    }

    /// Matches the document with this `_id`: the id of a commit, or of a snapshot's aggregate.
    pub fn id(id: impl Into<Bson>) -> Self {
        Self::eq("_id", id)
    }

    /// Matches documents with one of these `_id`s.
    pub fn ids<V: Into<Bson>>(ids: impl IntoIterator<Item = V>) -> Self {
        Self::is_in("_id", ids)
    }

    /// Matches documents of this aggregate.
    pub fn aggregate_id(id: impl Into<Bson>) -> Self {
        Self::eq("aggregateId", id)
    }

    /// Matches documents of one of these aggregates.
    pub fn aggregate_ids<V: Into<Bson>>(ids: impl IntoIterator<Item = V>) -> Self {
        Self::is_in("aggregateId", ids)
    }

    /// Matches documents whose aggregate has this `tenantId`.
    pub fn tenant_id(id: impl Into<Bson>) -> Self {
        Self::eq("tenantId", id)
    }

    /// Matches documents whose aggregate has this `ownerId`.
    pub fn owner_id(id: impl Into<Bson>) -> Self {
        Self::eq("ownerId", id)
    }

    /// Matches documents whose aggregate has this `spaceId`.
    pub fn space_id(id: impl Into<Bson>) -> Self {
        Self::eq("spaceId", id)
    }

    /// Matches if the field is a string that contains this.
    pub fn contains(path: impl Into<String>, fragment: impl Into<Fragment>) -> Self {
        Self::field(path, Test::Contains(fragment.into()))
    }

    /// Matches if the field is a string that starts with this.
    pub fn starts_with(path: impl Into<String>, fragment: impl Into<Fragment>) -> Self {
        Self::field(path, Test::StartsWith(fragment.into()))
    }

    /// Matches if the field is a string that ends with this.
    pub fn ends_with(path: impl Into<String>, fragment: impl Into<Fragment>) -> Self {
        Self::field(path, Test::EndsWith(fragment.into()))
    }

    /// Matches if the field is an array that contains all of these values.
    pub fn all_in<V: Into<Bson>>(path: impl Into<String>, values: impl IntoIterator<Item = V>) -> Self {
        Self::field(path, Test::AllIn(values.into_iter().map(Into::into).collect()))
    }

    /// Matches if the field is an array with an element that matches. Paths in the inner condition are relative to that element.
    pub fn elem_match(path: impl Into<String>, inner: Condition) -> Self {
        Self::field(path, Test::ElemMatch(Box::new(inner)))
    }

    /// Matches if the field is null or missing.
    pub fn is_null(path: impl Into<String>) -> Self {
        Self::eq(path, Bson::Null)
    }

    /// Matches if the field exists and is not null.
    pub fn not_null(path: impl Into<String>) -> Self {
        Self::ne(path, Bson::Null)
    }

    /// Matches if the field is true.
    pub fn is_true(path: impl Into<String>) -> Self {
        Self::eq(path, true)
    }

    /// Matches if the field is false.
    pub fn is_false(path: impl Into<String>) -> Self {
        Self::eq(path, false)
    }

    /// Matches by whether the aggregate is deleted.
    pub fn deleted(which: Deletion) -> Self {
        Self::Deleted(which)
    }

    /// Matches documents that contain these words, by the collection's text index.
    pub fn matching_text(words: impl Into<String>) -> Self {
        Self::Match(words.into())
    }

    /// Matches by a filter document of MongoDB. The embedded store refuses operators that it does not know, by name.
    pub fn raw(filter: Document) -> Self {
        Self::Raw(filter)
    }

    /// Matches if the field is within a window of time.
    pub fn within(path: impl Into<String>, window: impl Into<Window>) -> Self {
        Self::field(path, Test::Within(window.into()))
    }

    /// Matches if the field is a time of today, in milliseconds since 1970-01-01 UTC.
    pub fn today(path: impl Into<String>) -> Self {
        Self::within(path, Days::Today)
    }

    /// Matches if the field is a time of tomorrow.
    pub fn tomorrow(path: impl Into<String>) -> Self {
        Self::within(path, Days::Tomorrow)
    }

    /// Matches if the field is a time of this week, which begins on Monday.
    pub fn this_week(path: impl Into<String>) -> Self {
        Self::within(path, Days::ThisWeek)
    }

    /// Matches if the field is a time of next week.
    pub fn next_week(path: impl Into<String>) -> Self {
        Self::within(path, Days::NextWeek)
    }

    /// Matches if the field is a time of last week.
    pub fn last_week(path: impl Into<String>) -> Self {
        Self::within(path, Days::LastWeek)
    }

    /// Matches if the field is a time of this month.
    pub fn this_month(path: impl Into<String>) -> Self {
        Self::within(path, Days::ThisMonth)
    }

    /// Matches if the field is a time of last month.
    pub fn last_month(path: impl Into<String>) -> Self {
        Self::within(path, Days::LastMonth)
    }

    /// Matches if the field is a time of the last `days` days, including today.
    pub fn recent_days(path: impl Into<String>, days: u32) -> Self {
        Self::within(path, Days::Recent(days))
    }

    /// Matches if the field is a time before the last `days` days.
    pub fn earlier_days(path: impl Into<String>, days: u32) -> Self {
        Self::within(path, Days::Earlier(days))
    }

    /// Matches if the field is before today at this time of day.
    pub fn before_today(path: impl Into<String>, time: TimeOfDay) -> Self {
        Self::within(path, Days::BeforeToday(time))
    }
}

/// Builds paths of fields below a common path:
/// `let state = Nested::in_state(); Condition::eq(state.at("status"), "PAID")`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nested(String);

impl Nested {
    /// Creates the fields below this path; the empty path is the whole document.
    pub fn new(path: impl Into<String>) -> Self {
        Self(path.into())
    }

    /// Creates the fields of a snapshot's state.
    pub fn in_state() -> Self {
        Self::new("state")
    }

    /// Returns the path of one of these fields, from the document's root.
    pub fn at(&self, path: &str) -> String {
        match self.0.as_str() {
            "" => path.to_owned(),
            outer => format!("{outer}.{path}"),
        }
    }

    /// Returns the fields below one of these.
    pub fn nested(&self, path: &str) -> Self {
        Self(self.at(path))
    }
}
