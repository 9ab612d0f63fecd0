//! The filter that browsing, previews, exports and replays share.

use bson::{Bson, DateTime, Document, doc};
use serde::{Deserialize, Serialize};

use crate::{Code, Condition, Invalid, Timestamp};

/// A filter of events. Absent fields, empty strings and empty lists do not restrict it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReplayFilter {
    /// Events with one of these ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_ids: Option<Vec<String>>,
    /// Events whose data names this execution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<String>,
    /// Events of the aggregates with this id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregate_id: Option<String>,
    /// Events of one of these types.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_types: Option<Vec<String>>,
    /// Events of any type but these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude_event_types: Option<Vec<String>>,
    /// Events that happened at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    /// Events that happened at this time or earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Timestamp>,
    /// Events of this user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// Events of this service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
}

/// The maximum length of each list of a filter.
const LISTED_MAX: usize = 1_000;

fn text(value: Option<&String>) -> Option<&str> {
    value.map(String::as_str).filter(|text| !text.is_empty())
}

fn list(values: Option<&Vec<String>>) -> Option<&[String]> {
    values.map(Vec::as_slice).filter(|values| !values.is_empty())
}

fn date(time: Timestamp) -> Bson {
    DateTime::from_millis(time.as_millis()).into()
}

impl ReplayFilter {
    /// Returns whether it does not restrict the events. Excluded types alone do not count as a restriction.
    pub fn is_empty(&self) -> bool {
        list(self.event_ids.as_ref()).is_none()
            && list(self.event_types.as_ref()).is_none()
            && self.start_time.is_none()
            && self.end_time.is_none()
            && self.texts().all(|(_, value)| value.is_none())
    }

    /// Returns the fields that are compared with a string.
    fn texts(&self) -> impl Iterator<Item = (&'static str, Option<&str>)> {
        [
            ("execution_id", &self.execution_id),
            ("aggregate_id", &self.aggregate_id),
            ("metadata.user_id", &self.user_id),
            ("metadata.service_name", &self.service_name),
        ]
        .into_iter()
        .map(|(path, value)| (path, text(value.as_ref())))
    }

    /// Returns the filter as a MongoDB query on the collection `events`.
    pub fn to_mongo_query(&self) -> Document {
        let mut query = Document::new();
        if let Some(ids) = list(self.event_ids.as_ref()) {
            query.insert("event_id", doc! { "$in": ids });
        }
        for (path, value) in self.texts() {
            if let Some(value) = value {
                query.insert(path, value);
            }
        }
        let mut types = Document::new();
        if let Some(wanted) = list(self.event_types.as_ref()) {
            types.insert("$in", wanted);
        }
        if let Some(unwanted) = list(self.exclude_event_types.as_ref()) {
            types.insert("$nin", unwanted);
        }
        if !types.is_empty() {
            query.insert("event_type", types);
        }
        let mut time = Document::new();
        if let Some(start) = self.start_time {
            time.insert("$gte", date(start));
        }
        if let Some(end) = self.end_time {
            time.insert("$lte", date(end));
        }
        if !time.is_empty() {
            query.insert("timestamp", time);
        }
        query
    }

    /// Returns the filter as a condition on documents of the view, equivalent to [`to_mongo_query`](Self::to_mongo_query).
    pub fn condition(&self) -> Condition {
        let mut all = Vec::new();
        if let Some(ids) = list(self.event_ids.as_ref()) {
            all.push(Condition::is_in("event_id", ids.iter().map(String::as_str)));
        }
        all.extend(self.texts().filter_map(|(path, value)| Some(Condition::eq(path, value?))));
        if let Some(types) = list(self.event_types.as_ref()) {
            all.push(Condition::is_in("event_type", types.iter().map(String::as_str)));
        }
        if let Some(types) = list(self.exclude_event_types.as_ref()) {
            all.push(Condition::not_in("event_type", types.iter().map(String::as_str)));
        }
        all.extend(self.start_time.map(|time| Condition::gte("timestamp", date(time))));
        all.extend(self.end_time.map(|time| Condition::lte("timestamp", date(time))));
        Condition::and(all)
    }

    /// Checks the lengths of lists.
    ///
    /// # Errors
    /// `invalid_query` with the field below `path`.
    pub fn validate(&self, path: &str) -> Result<(), Invalid> {
        for (field, values) in [
            ("event_ids", &self.event_ids),
            ("event_types", &self.event_types),
            ("exclude_event_types", &self.exclude_event_types),
        ] {
            let count = values.as_ref().map_or(0, Vec::len);
            if count > LISTED_MAX {
                let message = format!("lists {count} values; at most {LISTED_MAX} are allowed");
                return Err(Invalid::new(Code::InvalidQuery, format!("{path}{field}"), message));
            }
        }
        Ok(())
    }
}
