//! Conditions in Rust.

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
    /// A field passes a test.
    pub fn field(path: impl Into<String>, test: Test) -> Self {
        Self::Field { path: path.into(), test }
    }

    field_tests! {
        /// The field is equal to the value; null is equal to a missing field.
        eq Eq
        /// The field is not equal to the value.
        ne Ne
        /// The field is greater than the value.
        gt Gt
        /// The field is greater than the value or equal to it.
        gte Gte
        /// The field is less than the value.
        lt Lt
        /// The field is less than the value or equal to it.
        lte Lte
    }

    /// The field is equal to one of the values.
    pub fn is_in<V: Into<Bson>>(path: impl Into<String>, values: impl IntoIterator<Item = V>) -> Self {
        Self::field(path, Test::In(values.into_iter().map(Into::into).collect()))
    }

    /// The field is equal to none of the values.
    pub fn not_in<V: Into<Bson>>(path: impl Into<String>, values: impl IntoIterator<Item = V>) -> Self {
        Self::field(path, Test::NotIn(values.into_iter().map(Into::into).collect()))
    }

    /// The field is not less than `low` and not greater than `high`.
    pub fn between(path: impl Into<String>, low: impl Into<Bson>, high: impl Into<Bson>) -> Self {
        Self::field(path, Test::Between(low.into(), high.into()))
    }

    /// The field is there.
    pub fn exists(path: impl Into<String>) -> Self {
        Self::field(path, Test::Exists(true))
    }

    /// The field is not there.
    pub fn missing(path: impl Into<String>) -> Self {
        Self::field(path, Test::Exists(false))
    }

    /// All of these hold: one stays itself, none is every document.
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

    /// At least one of these holds.
    pub fn or(conditions: impl IntoIterator<Item = Condition>) -> Self {
        Self::Or(conditions.into_iter().collect())
    }

    /// None of these holds.
    pub fn nor(conditions: impl IntoIterator<Item = Condition>) -> Self {
        Self::Nor(conditions.into_iter().collect())
    }

    /// The document has this `_id`: the commit's id, or the aggregate's of a snapshot.
    pub fn id(id: impl Into<Bson>) -> Self {
        Self::eq("_id", id)
    }

    /// The document has one of these `_id`s.
    pub fn ids<V: Into<Bson>>(ids: impl IntoIterator<Item = V>) -> Self {
        Self::is_in("_id", ids)
    }

    /// The document is of this aggregate.
    pub fn aggregate_id(id: impl Into<Bson>) -> Self {
        Self::eq("aggregateId", id)
    }

    /// The document is of one of these aggregates.
    pub fn aggregate_ids<V: Into<Bson>>(ids: impl IntoIterator<Item = V>) -> Self {
        Self::is_in("aggregateId", ids)
    }

    /// The aggregate has this `tenantId`.
    pub fn tenant_id(id: impl Into<Bson>) -> Self {
        Self::eq("tenantId", id)
    }

    /// The aggregate has this `ownerId`.
    pub fn owner_id(id: impl Into<Bson>) -> Self {
        Self::eq("ownerId", id)
    }

    /// The aggregate has this `spaceId`.
    pub fn space_id(id: impl Into<Bson>) -> Self {
        Self::eq("spaceId", id)
    }

    /// The field is a text with this inside.
    pub fn contains(path: impl Into<String>, fragment: impl Into<Fragment>) -> Self {
        Self::field(path, Test::Contains(fragment.into()))
    }

    /// The field is a text that begins with this.
    pub fn starts_with(path: impl Into<String>, fragment: impl Into<Fragment>) -> Self {
        Self::field(path, Test::StartsWith(fragment.into()))
    }

    /// The field is a text that ends with this.
    pub fn ends_with(path: impl Into<String>, fragment: impl Into<Fragment>) -> Self {
        Self::field(path, Test::EndsWith(fragment.into()))
    }

    /// The field is an array with all of these values.
    pub fn all_in<V: Into<Bson>>(path: impl Into<String>, values: impl IntoIterator<Item = V>) -> Self {
        Self::field(path, Test::AllIn(values.into_iter().map(Into::into).collect()))
    }

    /// The field is an array with a document that passes. The paths of the inner condition begin inside that document.
    pub fn elem_match(path: impl Into<String>, inner: Condition) -> Self {
        Self::field(path, Test::ElemMatch(Box::new(inner)))
    }

    /// The field is null, or is missing.
    pub fn is_null(path: impl Into<String>) -> Self {
        Self::eq(path, Bson::Null)
    }

    /// The field is there, and is not null.
    pub fn not_null(path: impl Into<String>) -> Self {
        Self::ne(path, Bson::Null)
    }

    /// The field is true.
    pub fn is_true(path: impl Into<String>) -> Self {
        Self::eq(path, true)
    }

    /// The field is false.
    pub fn is_false(path: impl Into<String>) -> Self {
        Self::eq(path, false)
    }

    /// The aggregate is deleted, is not, or either.
    pub fn deleted(which: Deletion) -> Self {
        Self::Deleted(which)
    }

    /// The text of the document has these words, by the collection's text index.
    pub fn matching_text(words: impl Into<String>) -> Self {
        Self::Match(words.into())
    }

    /// A filter document of MongoDB. The embedded store refuses by name what it does not know.
    pub fn raw(filter: Document) -> Self {
        Self::Raw(filter)
    }

    /// The field lies in a window of time.
    pub fn within(path: impl Into<String>, window: impl Into<Window>) -> Self {
        Self::field(path, Test::Within(window.into()))
    }

    /// The field is a time of today, in milliseconds since 1970-01-01 UTC.
    pub fn today(path: impl Into<String>) -> Self {
        Self::within(path, Days::Today)
    }

    /// The field is a time of tomorrow.
    pub fn tomorrow(path: impl Into<String>) -> Self {
        Self::within(path, Days::Tomorrow)
    }

    /// The field is a time of this week, which begins on Monday.
    pub fn this_week(path: impl Into<String>) -> Self {
        Self::within(path, Days::ThisWeek)
    }

    /// The field is a time of next week.
    pub fn next_week(path: impl Into<String>) -> Self {
        Self::within(path, Days::NextWeek)
    }

    /// The field is a time of last week.
    pub fn last_week(path: impl Into<String>) -> Self {
        Self::within(path, Days::LastWeek)
    }

    /// The field is a time of this month.
    pub fn this_month(path: impl Into<String>) -> Self {
        Self::within(path, Days::ThisMonth)
    }

    /// The field is a time of last month.
    pub fn last_month(path: impl Into<String>) -> Self {
        Self::within(path, Days::LastMonth)
    }

    /// The field is a time of the last so many days; today is one of them.
    pub fn recent_days(path: impl Into<String>, days: u32) -> Self {
        Self::within(path, Days::Recent(days))
    }

    /// The field is a time before the last so many days.
    pub fn earlier_days(path: impl Into<String>, days: u32) -> Self {
        Self::within(path, Days::Earlier(days))
    }

    /// The field is a time before today at this time of the day.
    pub fn before_today(path: impl Into<String>, time: TimeOfDay) -> Self {
        Self::within(path, Days::BeforeToday(time))
    }
}

/// Fields inside a document, so that what they have in common is written once:
/// `let state = Nested::in_state(); Condition::eq(state.at("status"), "PAID")`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nested(String);

impl Nested {
    /// The fields below this path; of the empty one, the fields of the whole document.
    pub fn new(path: impl Into<String>) -> Self {
        Self(path.into())
    }

    /// The fields of a snapshot's state.
    pub fn in_state() -> Self {
        Self::new("state")
    }

    /// The path of one of these fields, from the document's root.
    pub fn at(&self, path: &str) -> String {
        match self.0.as_str() {
            "" => path.to_owned(),
            outer => format!("{outer}.{path}"),
        }
    }

    /// The fields below one of these.
    pub fn nested(&self, path: &str) -> Self {
        Self(self.at(path))
    }
}
