//! Statistics from groups of documents.

use std::time::Duration;

use annals_core::browse::{EventStatistics, HourCount, StatisticsQuery, TypeCount, UserCount, percent};
use annals_core::bson::{Bson, DateTime};
use annals_core::{Aggregation, Condition, Every, Figure, Group, GroupQuery, Timestamp, limits};

use super::{BrowseError, TenantBrowse};

/// The number of types and users that are listed.
const LISTED_MAX: usize = 10;
/// The path of a completed execution's duration.
const TOOK: &str = "resource_usage.execution_time_wall_seconds";

impl TenantBrowse {
    pub(super) async fn counted(&self, query: StatisticsQuery) -> Result<EventStatistics, BrowseError> {
        let now = self.shared.options.clock.now();
        let back = Duration::from_secs(u64::from(query.hours) * 3_600);
        let since = now.as_millis() - i64::try_from(back.as_millis()).unwrap_or(i64::MAX);
        let recent = Condition::gte("timestamp", DateTime::from_millis(since));
        let failure_types = query.failures();

        let by_type = self.groups(grouped(recent.clone(), "event_type")).await?;
        let total_events = by_type.iter().map(|group| group.count).sum();
        let is_failure =
            |group: &&Group| group.key.as_str().is_some_and(|it| failure_types.iter().any(|type_| type_ == it));
        let failures = by_type.iter().filter(is_failure).map(|group| group.count).sum();
        let hours = GroupQuery { every: Some(Every::Hour), ..grouped(recent.clone(), "timestamp") };
        let by_hour = self.groups(hours).await?;
        let by_user = self.groups(grouped(recent.clone(), "metadata.user_id")).await?;
        let named = |group: &Group| group.key.as_str().map(str::to_owned);
        let hour = |group: &Group| Some(Timestamp::from_millis(group.key.as_datetime()?.timestamp_millis()));
        Ok(EventStatistics {
            hours: query.hours,
            since: Timestamp::from_millis(since).nearest_writable(),
            total_events,
            event_types: most(by_type.iter().filter_map(|group| Some((named(group)?, group.count))))
                .map(|(event_type, count)| TypeCount { event_type, count })
                .collect(),
            events_by_hour: by_hour
                .iter()
                .filter_map(|group| Some(HourCount { hour: hour(group)?.nearest_writable(), count: group.count }))
                .collect(),
            top_users: most(by_user.iter().filter_map(|group| Some((named(group)?, group.count))))
                .map(|(user_id, count)| UserCount { user_id, count })
                .collect(),
            error_rate: percent(failures, total_events),
            avg_processing_time: self.average_time(recent).await?,
            failure_types,
        })
    }

    async fn average_time(&self, recent: Condition) -> Result<f64, BrowseError> {
        let completed = Condition::and([Condition::eq("event_type", "execution_completed"), recent]);
        let figure = Figure { name: "average".to_owned(), what: Aggregation::Avg, path: TOOK.to_owned() };
        let query = GroupQuery { by: None, figures: vec![figure], ..grouped(completed, "") };
        let average = self.groups(query).await?.first().and_then(|group| match group.figures.first() {
            Some(Bson::Double(average)) => Some((average * 100.0).round() / 100.0),
            _ => None,
        });
        Ok(average.unwrap_or(0.0))
    }

    /// Reads all pages of groups.
    async fn groups(&self, mut query: GroupQuery) -> Result<Vec<Group>, BrowseError> {
        let mut all = Vec::new();
        loop {
            let asked = &query;
            let page = self
                .live(|collection| async move { self.records.group(GroupQuery { collection, ..asked.clone() }).await });
            let page = page.await?;
            all.extend(page.groups);
            match page.next {
                Some(cursor) => query.after = Some(cursor),
                None => return Ok(all),
            }
        }
    }
}

fn grouped(condition: Condition, by: &str) -> GroupQuery {
    GroupQuery {
        collection: String::new(),
        condition,
        by: Some(by.to_owned()),
        every: None,
        figures: Vec::new(),
        limit: limits::PAGE_MAX,
        after: None,
    }
}

/// Returns those with the highest counts, in order of name if counts are equal.
fn most(counts: impl Iterator<Item = (String, u64)>) -> impl Iterator<Item = (String, u64)> {
    let mut counts: Vec<_> = counts.collect();
    counts.sort_by(|(a, of_a), (b, of_b)| of_b.cmp(of_a).then_with(|| a.cmp(b)));
    counts.truncate(LISTED_MAX);
    counts.into_iter()
}
