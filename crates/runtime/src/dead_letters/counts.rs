//! Counting letters.

use std::collections::BTreeMap;

use annals_core::bson::Bson;
use annals_core::dead_letters::{
    CRITICAL_ABOVE, DEAD_LETTERS, DeadLetter, DeadLetterError, LetterStatus, Level, Statistics, TopicStatistics,
    WARNING_ABOVE,
};
use annals_core::{Aggregation, ByteString, Condition, Group, GroupQuery, RecordError, Timestamp};

use super::TenantDeadLetters;

impl TenantDeadLetters {
    /// Returns the number of open letters.
    pub(crate) async fn open_count(&self) -> Result<u64, RecordError> {
        match self.records.count(DEAD_LETTERS, &DeadLetter::open()).await {
            Err(RecordError::UnknownCollection(_)) => Ok(0),
            count => count,
        }
    }

    /// Returns the number of open letters of each consumer.
    pub(crate) async fn open_by_consumer(&self) -> Result<BTreeMap<String, u64>, RecordError> {
        let open = GroupQuery::new(DEAD_LETTERS).by("processor").matching(DeadLetter::open());
        let groups = self.groups_of_letters(open).await?;
        Ok(groups.iter().map(|group| (name_of(group), group.count)).collect())
    }

    pub(super) async fn counted(&self, condition: &Condition) -> Result<Statistics, DeadLetterError> {
        let mut topics: BTreeMap<String, TopicStatistics> = BTreeMap::new();
        let figures = GroupQuery::new(DEAD_LETTERS)
            .by("original_topic")
            .matching(condition.clone())
            .figure("oldest", Aggregation::Min, "created_at")
            .figure("newest", Aggregation::Max, "created_at")
            .figure("average", Aggregation::Avg, "retry_count")
            .figure("most", Aggregation::Max, "retry_count");
        for group in self.groups_of_letters(figures).await? {
            let topic = name_of(&group);
            topics.insert(topic.clone(), figures_of(topic, &group));
        }
        for status in LetterStatus::ALL {
            let of_status = GroupQuery::new(DEAD_LETTERS).by("original_topic");
            let of_status =
                of_status.matching(Condition::and([Condition::eq("status", status.name()), condition.clone()]));
            for group in self.groups_of_letters(of_status).await? {
                // A topic whose first letter arrived after the first read is counted by the next call.
                if let Some(topic) = topics.get_mut(&name_of(&group)) {
                    topic.status_breakdown.insert(ByteString::from_static(status.name()), group.count);
                }
            }
        }
        let mut topics: Vec<_> = topics.into_values().collect();
        topics.sort_by(|one, other| (other.total_messages, &one.topic).cmp(&(one.total_messages, &other.topic)));
        let open = topics.iter().map(TopicStatistics::open).sum();
        Ok(Statistics {
            open,
            level: Level::of(open),
            warning_above: WARNING_ABOVE,
            critical_above: CRITICAL_ABOVE,
            topics,
        })
    }

    pub(super) async fn groups_of_letters(&self, mut query: GroupQuery) -> Result<Vec<Group>, RecordError> {
        let mut groups = Vec::new();
        loop {
            let page = match self.records.group(query.clone()).await {
                Err(RecordError::UnknownCollection(_)) => return Ok(groups),
                page => page?,
            };
            groups.extend(page.groups);
            let Some(cursor) = page.next else { return Ok(groups) };
            query = query.after(cursor);
        }
    }
}

fn name_of(group: &Group) -> String {
    group.key.as_str().unwrap_or_default().to_owned()
}

fn figures_of(topic: String, group: &Group) -> TopicStatistics {
    let time = |value: Option<&Bson>| match value {
        Some(Bson::DateTime(at)) => Some(Timestamp::from_millis(at.timestamp_millis())),
        _ => None,
    };
    let average = group.figures.get(2).and_then(Bson::as_f64).unwrap_or(0.0);
    let most = group.figures.get(3).and_then(Bson::as_i64).unwrap_or(0);
    TopicStatistics {
        topic: topic.into(),
        total_messages: group.count,
        status_breakdown: BTreeMap::new(),
        oldest_message: time(group.figures.first()),
        newest_message: time(group.figures.get(1)),
        avg_retry_count: (average * 100.0).round() / 100.0,
        max_retry_count: most.cast_unsigned(),
    }
}
