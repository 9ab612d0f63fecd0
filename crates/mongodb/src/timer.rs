//! How long MongoDB and other processes are waited for: deadlines and pauses on the clock port.
//!
//! It is a clock of its own among the options. A test that stands the store's clock still, so that documents have the times it wants,
//! still talks to a server in another process, which must be waited for.

use std::ops::Add;
use std::sync::Arc;
use std::time::Duration;

use annals_core::Clock;

/// Measures by time that setting the wall clock does not change.
#[derive(Clone)]
pub(crate) struct Timer(Arc<dyn Clock>);

/// A point in a timer's time; nothing of it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}

impl Timer {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self(clock)
    }

    pub(crate) fn now(&self) -> Moment {
        Moment(self.0.elapsed())
    }

    /// Whether a moment has come.
    pub(crate) fn is_past(&self, moment: Moment) -> bool {
        self.now() >= moment
    }

    /// Waits for this long.
    pub(crate) async fn pause(&self, time: Duration) {
        self.0.sleep(time).await;
    }
}

#[cfg(test)]
mod tests {
    use annals_conformance::ManualClock;
    use annals_core::Timestamp;

    use super::*;

    #[tokio::test]
    async fn a_deadline_is_the_clocks_and_not_the_runtimes() {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(5)));
        let timer = Timer::new(clock.clone());
        let ends = timer.now() + Duration::from_secs(3_600);
        let waiting = tokio::spawn({
            let timer = timer.clone();
            async move { timer.pause(Duration::from_secs(3_600)).await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished() && !timer.is_past(ends));
        clock.advance_millis(3_600_000);
        waiting.await.expect("it ends well");
        assert!(timer.is_past(ends));
    }
}
