//! The operators of conditions: one table of their names in JSON and in typed conditions.

use std::fmt;

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! operators {
    ($($name:ident $written:literal $short:literal)+) => {
        /// The operators of conditions.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub(super) enum Operator {
            #[default]
            $($name,)+
        }

        impl Operator {
            /// Returns its name in JSON.
            pub(super) const fn written(self) -> &'static str {
                match self { $(Self::$name => $written,)+ }
            }

            /// Returns the operator with this name, either in JSON or in typed conditions and Wow's own language.
            pub(super) fn of(name: &str) -> Option<Self> {
                match name {
                    $($written | $short => Some(Self::$name),)+
                    _ => None,
                }
            }
        }
    };
}

operators! {
    All "ALL" "all"
    And "AND" "and"
    Or "OR" "or"
    Nor "NOR" "nor"
    Id "ID" "id"
    Ids "IDS" "ids"
    AggregateId "AGGREGATE_ID" "aggregateId"
    AggregateIds "AGGREGATE_IDS" "aggregateIds"
    TenantId "TENANT_ID" "tenantId"
    OwnerId "OWNER_ID" "ownerId"
    SpaceId "SPACE_ID" "spaceId"
    Deleted "DELETED" "deleted"
    Eq "EQ" "eq"
    Ne "NE" "ne"
    Gt "GT" "gt"
    Lt "LT" "lt"
    Gte "GTE" "gte"
    Lte "LTE" "lte"
    Contains "CONTAINS" "contains"
    StartsWith "STARTS_WITH" "startsWith"
    EndsWith "ENDS_WITH" "endsWith"
    Match "MATCH" "match"
    In "IN" "isIn"
    NotIn "NOT_IN" "notIn"
    Between "BETWEEN" "between"
    AllIn "ALL_IN" "allIn"
    ElemMatch "ELEM_MATCH" "elemMatch"
    Null "NULL" "isNull"
    NotNull "NOT_NULL" "notNull"
    True "TRUE" "isTrue"
    False "FALSE" "isFalse"
    Exists "EXISTS" "exists"
    Raw "RAW" "raw"
    Today "TODAY" "today"
    BeforeToday "BEFORE_TODAY" "beforeToday"
    Tomorrow "TOMORROW" "tomorrow"
    ThisWeek "THIS_WEEK" "thisWeek"
    NextWeek "NEXT_WEEK" "nextWeek"
    LastWeek "LAST_WEEK" "lastWeek"
    ThisMonth "THIS_MONTH" "thisMonth"
    LastMonth "LAST_MONTH" "lastMonth"
    RecentDays "RECENT_DAYS" "recentDays"
    EarlierDays "EARLIER_DAYS" "earlierDays"
}

impl Operator {
    /// The signs of comparisons. Of signs with a common prefix, the longer one comes first.
    pub(super) const SIGNS: [(&str, Self); 7] = [
        ("==", Self::Eq),
        ("=", Self::Eq),
        ("!=", Self::Ne),
        (">=", Self::Gte),
        ("<=", Self::Lte),
        (">", Self::Gt),
        ("<", Self::Lt),
    ];

    /// Returns the operator that a person types as a word after a field.
    pub(super) fn of_word(word: &str) -> Option<Self> {
        let known = if word == "in" { Some(Self::In) } else { Self::of(word) };
        known.filter(|operator| operator.tests_a_field())
    }

    /// Returns whether it searches a text and can ignore case.
    pub(super) fn is_of_text(self) -> bool {
        matches!(self, Self::Contains | Self::StartsWith | Self::EndsWith)
    }

    /// Returns whether it is a window of time.
    pub(super) fn is_of_time(self) -> bool {
        use Operator::{
            BeforeToday, EarlierDays, LastMonth, LastWeek, NextWeek, RecentDays, ThisMonth, ThisWeek, Today, Tomorrow,
        };
        matches!(
            self,
            Today
                | BeforeToday
                | Tomorrow
                | ThisWeek
                | NextWeek
                | LastWeek
                | ThisMonth
                | LastMonth
                | RecentDays
                | EarlierDays
        )
    }

    /// Returns whether it tests a named field.
    pub(super) fn tests_a_field(self) -> bool {
        !self.is_about_the_document() && !matches!(self, Self::All | Self::And | Self::Or | Self::Nor)
    }

    /// Returns whether it tests the document as a whole, with a value.
    pub(super) fn is_about_the_document(self) -> bool {
        use Operator::{AggregateId, AggregateIds, Deleted, Id, Ids, Match, OwnerId, Raw, SpaceId, TenantId};
        matches!(self, Id | Ids | AggregateId | AggregateIds | TenantId | OwnerId | SpaceId | Deleted | Match | Raw)
    }

    /// Returns whether it joins conditions.
    pub(super) fn joins(self) -> bool {
        matches!(self, Self::And | Self::Or | Self::Nor | Self::ElemMatch)
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.written())
    }
}

impl Serialize for Operator {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.written())
    }
}

impl<'de> Deserialize<'de> for Operator {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Self::of(&name).ok_or_else(|| D::Error::invalid_value(Unexpected::Str(&name), &"an operator such as EQ"))
    }
}
