//! Posting events of a replay to a URL, with the sender of partner events, which checks addresses and does not follow redirects.

use std::sync::Arc;
use std::time::Duration;

use annals_core::RecordedEvent;
use annals_core::partners::{JSON, Outcome, Outgoing, Sending, of_answer};
use annals_core::replays::{ReplaySession, Sent};
use tokio::sync::watch;

use super::targets::{line, replay_of};

/// The time limit of a request, including its response.
const TIMEOUT: Duration = Duration::from_secs(15);

/// A URL that events are posted to.
pub(super) struct Webhook {
    pub sending: Arc<dyn Sending>,
    pub url: String,
}

/// An event that was posted and is not yet stored as sent. Counted until this value is dropped.
pub(super) struct Posted(watch::Sender<usize>);

impl Posted {
    /// Counts one more event.
    pub fn begin(posted: &watch::Sender<usize>) -> Self {
        posted.send_modify(|count| *count += 1);
        Self(posted.clone())
    }
}

impl Drop for Posted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Webhook {
    /// Posts an event. Every attempt has the same `webhook-id`, so that a receiver can recognise a repetition.
    pub async fn send(&self, event: &RecordedEvent, session: &ReplaySession) -> Sent {
        let request = Outgoing {
            url: self.url.clone(),
            headers: vec![
                ("content-type", JSON.to_owned()),
                ("webhook-id", format!("{}/{}", session.replay_id, event.id.hyphenated())),
                ("annals-replay", session.replay_id.clone()),
            ],
            body: line(event, &replay_of(session)).into_bytes().into(),
            timeout: TIMEOUT,
        };
        match self.sending.send(request).await {
            Ok(answered) => match of_answer(answered.status, answered.retry_after, &answered.said) {
                Outcome::Delivered { .. } => Sent::Done,
                Outcome::Failed { reason, status: Some(408 | 429 | 500..=599), .. } => Sent::Unreachable(reason),
                Outcome::Failed { reason, .. } | Outcome::Refused { reason, .. } => Sent::Failed(reason),
            },
            Err(reason) => Sent::Unreachable(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostOptions;

    #[test]
    fn a_host_that_is_drained_waits_for_the_answer_to_what_it_has_posted() {
        assert!(HostOptions::default().drain_max > TIMEOUT);
    }
}
