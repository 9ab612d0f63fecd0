//! The health of a processor, derived from its stored state.

/// How long events may wait without any progress before their processor counts as stalled, in seconds.
pub const STALLED_AFTER_SECONDS: u64 = 60;

/// The stored state of a processor that determines its health.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vitals<'a> {
    /// Whether it does not advance until an operator decides.
    pub is_blocked: bool,
    /// Whether its next event failed and blocks all later ones until it is retried.
    pub is_held: bool,
    /// Whether an operator paused it, or it has completed.
    pub is_at_rest: bool,
    /// Whether a process runs it.
    pub is_owned: bool,
    /// The number of failing partitions.
    pub failing: u64,
    /// The number of failing partitions that wait for an operator.
    pub stuck: u64,
    /// The age of the oldest unprocessed event, in seconds; 0 if there is none.
    pub oldest: u64,
    /// The time since it last progressed, or since it was defined, in seconds.
    pub since_progress: u64,
    /// The reason of the last failure.
    pub reason: Option<&'a str>,
}

impl Vitals<'_> {
    /// Returns why the processor is degraded; `None` if it is healthy.
    pub fn complaint(&self) -> Option<String> {
        let because = self.reason.map_or_else(String::new, |reason| format!("; the last failure: {reason}"));
        if self.is_blocked {
            return Some(format!("it is blocked until an operator decides{because}"));
        }
        if self.is_held {
            return Some(format!("its next event fails and is retried{because}"));
        }
        if self.failing > 0 {
            let (failing, stuck) = (self.failing, self.stuck);
            return Some(format!("failing partitions: {failing}, waiting for an operator: {stuck}{because}"));
        }
        // The oldest event may have arrived just now, after a long time without any events.
        let stalled = self.oldest.min(self.since_progress);
        match (stalled >= STALLED_AFTER_SECONDS && !self.is_at_rest, self.is_owned) {
            (false, _) => None,
            (true, true) => Some(format!("events are pending and there has been no progress for {stalled} s{because}")),
            (true, false) => {
                Some(format!("no process or worker processes its events, which have been pending for {stalled} s"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_is_unhealthy_when_it_fails_is_blocked_or_does_not_advance() {
        let sound = Vitals { is_owned: true, since_progress: 1_000_000, ..Vitals::default() };
        assert_eq!(sound.complaint(), None, "nothing waits");
        let fresh = Vitals { oldest: 59, ..sound.clone() };
        assert_eq!(fresh.complaint(), None, "it came after a long time without events");
        let catching_up = Vitals { oldest: 1_000_000, since_progress: 1, ..sound.clone() };
        assert_eq!(catching_up.complaint(), None, "the events are old, and it advances");
        let stalled = Vitals { oldest: 61, reason: Some("down"), ..sound.clone() };
        let said = stalled.complaint().expect("stalled");
        assert!(said.contains("no progress for 61 s") && said.contains("down"), "{said}");
        assert_eq!(Vitals { is_at_rest: true, ..stalled.clone() }.complaint(), None, "an operator paused it");
        let abandoned = Vitals { is_owned: false, ..stalled.clone() }.complaint().expect("nobody is there");
        assert!(abandoned.contains("no process or worker"), "{abandoned}");
        let failing = Vitals { failing: 3, stuck: 1, reason: Some("down"), ..sound.clone() };
        let said = failing.complaint().expect("partitions fail");
        assert!(said.contains('3') && said.contains('1') && said.contains("down"), "{said}");
        assert!(Vitals { is_at_rest: true, ..failing }.complaint().is_some(), "a pause hides no failure");
        assert!(Vitals { is_blocked: true, ..sound.clone() }.complaint().is_some());
        assert!(Vitals { is_held: true, ..sound }.complaint().is_some());
    }
}
