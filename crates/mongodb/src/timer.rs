//! How long MongoDB and other processes are waited for: every deadline and every pause of this adapter, on the clock port.
//!
//! It is a clock of its own among the options. A test that stands the store's clock still, so that documents have the times it wants,
//! still talks to a server in another process, which must be waited for.

use std::future::Future;
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

impl Moment {
    /// The moment this long before it; the timer's first one where there was none.
    pub(crate) fn before(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(time))
    }
}

impl Timer {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self(clock)
    }

    pub(crate) fn now(&self) -> Moment {
        Moment(self.0.elapsed())
    }

    /// How long ago a moment was; zero for one that is still to come.
    pub(crate) fn since(&self, moment: Moment) -> Duration {
        self.0.elapsed().saturating_sub(moment.0)
    }

    /// Whether a moment has come.
    pub(crate) fn is_past(&self, moment: Moment) -> bool {
        self.now() >= moment
    }

    /// Waits for this long.
    pub(crate) async fn pause(&self, time: Duration) {
        self.0.sleep(time).await;
    }

    /// Waits until a moment has come.
    pub(crate) async fn until(&self, moment: Moment) {
        let left = moment.0.saturating_sub(self.0.elapsed());
        if !left.is_zero() {
            self.0.sleep(left).await;
        }
    }

    /// What comes of the work within this time; none where that ends first, and the work is dropped.
    pub(crate) async fn within<T>(&self, time: Duration, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.0.sleep(time) => None,
        }
    }

    /// What comes of the work before a moment.
    pub(crate) async fn by<T>(&self, ends: Moment, work: impl Future<Output = T>) -> Option<T> {
        self.within(ends.0.saturating_sub(self.0.elapsed()), work).await
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
            async move { timer.by(ends, std::future::pending::<()>()).await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished() && !timer.is_past(ends));
        clock.advance_millis(3_600_000);
        assert_eq!(waiting.await.expect("it ends well"), None);
        timer.until(ends).await;
        assert_eq!(
            (timer.is_past(ends), timer.since(ends), timer.now().before(Duration::ZERO)),
            (true, Duration::ZERO, ends)
        );
        assert_eq!(
            timer.within(Duration::from_secs(1), async { 7 }).await,
            Some(7),
            "what is done is taken at any time"
        );
    }
}
