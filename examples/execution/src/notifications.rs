//! The notification service, which notifies users that their executions have ended.

use std::sync::Arc;

use annals::names::uuid_of;
use annals::runtime::{Consumer, HandleFailure, consumer};
use annals::{CommitError, EventLog, NewCommit, RecordedEvent};
use serde_json::{Value, json};

use crate::events::{self, COMPLETED, ENDED_BY_ITSELF, NOTIFICATION_CREATED, TIMEOUT, short_id};
use crate::execution::Execution;

/// The group of the notification service, as Integr8sCode calls it.
pub const NOTIFICATIONS_GROUP: &str = "notification-service";
/// The name of the aggregates of notifications.
const AGGREGATE: &str = "notification";
/// Most executions whose notifications are created concurrently.
const IN_FLIGHT: u32 = 10;

pub(crate) struct Notifications {
    pub(crate) log: Arc<dyn EventLog>,
}

impl Notifications {
    pub(crate) fn consumer(self: &Arc<Self>) -> Consumer {
        let group = consumer(NOTIFICATIONS_GROUP, ENDED_BY_ITSELF).in_flight(IN_FLIGHT);
        ENDED_BY_ITSELF.into_iter().fold(group, |group, topic| {
            let notifications = Arc::clone(self);
            group.on(topic, move |event, data: Value| {
                let notifications = Arc::clone(&notifications);
                async move { notifications.notify(&event, &data).await }
            })
        })
    }

    /// Notifies the owner of an execution once, however often its event is delivered. An execution without an owner notifies nobody.
    pub(crate) async fn notify(&self, event: &RecordedEvent, data: &Value) -> Result<(), HandleFailure> {
        let id = &*event.commit.aggregate.id;
        let Some(execution) = Execution::read(&*self.log, id).await? else { return Ok(()) };
        let user = execution.user();
        if user.is_empty() {
            return Ok(());
        }
        let (outcome, severity) = match &*event.event_type {
            COMPLETED => ("completed", "low"),
            TIMEOUT => ("timed out", "medium"),
            _ => ("failed", "high"),
        };
        let short = short_id(id);
        let exit = data["exit_code"].as_i64().map(|code| format!(" with exit code {code}")).unwrap_or_default();
        // The id is the same for every delivery of the event.
        let notification_id = uuid_of(AGGREGATE, &format!("ended:{id}")).to_string();
        let created = json!({
            "notification_id": notification_id, "user_id": user, "subject": format!("Execution {short} {outcome}"),
            "body": format!("Execution {id} {outcome}{exit}."), "severity": severity,
            "tags": ["execution", format!("exec:{id}")], "channels": ["in_app"],
        });
        let created = events::event(NOTIFICATION_CREATED, &created).map_err(HandleFailure::never)?;
        let mut commit = NewCommit::new(AGGREGATE, notification_id).event(created).request_id("created");
        commit.header = events::header(user);
        commit.correlation_id = Some(id.into());
        commit.causation_id = Some(event.id.to_string().into());
        match self.log.commit(commit).await {
            // Another event had already ended the execution.
            Ok(_) | Err(CommitError::RequestIdReused { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
