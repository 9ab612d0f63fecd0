//! Diagnosis of the store of a host, and of everything that runs on it.

use annals_core::doctor::{Diagnosis, Finding, Severity};
use annals_core::relay::RelayStatus;
use annals_core::{LogStatus, SequenceNumber};
use futures_util::future::{BoxFuture, FutureExt, join};

use crate::health::ProcessorHealth;
use crate::host::{Host, TaskState, TaskStatus};

/// The lag above which the sequencer is a finding: commits wait for their sequence numbers that long.
const SEQUENCER_LAG_MAX_MS: u64 = 5_000;

impl Host {
    /// Examines the store, what it is built on, and everything that runs on it, without changing anything. What cannot be examined is a
    /// finding.
    pub fn diagnose(&self) -> BoxFuture<'_, Diagnosis> {
        self.examined().boxed()
    }

    async fn examined(&self) -> Diagnosis {
        let store = self.store();
        let logs = store.status();
        let (health, below) = join(self.health(), store.examine()).await;
        let mut findings: Vec<_> = logs.iter().flat_map(of_log).collect();
        findings.extend(undeclared(store.undeclared_logs()));
        let processors = match &health {
            Ok(health) => {
                findings.extend(health.iter().filter_map(of_processor));
                health.len()
            }
            Err(error) => {
                let what = format!("The state of handlers, filters and projections cannot be read: {error}.");
                findings.push(Finding::new(Severity::Critical, "processors", what, error.advice()));
                0
            }
        };
        findings.extend(self.tasks().iter().filter_map(of_task));
        findings.extend(self.relays().iter().flat_map(of_relay));
        let events: SequenceNumber = logs.iter().map(|log| log.head).sum();
        let examined = vec![
            counted(logs.len() as u64, "log", &format!(" with {}", counted(events, "event", ""))),
            counted(processors as u64, "processor", ""),
        ];
        Diagnosis::new(examined, findings).and(below)
    }
}

fn counted(count: u64, what: &str, more: &str) -> String {
    format!("{count} {what}{}{more}", if count == 1 { "" } else { "s" })
}

fn of_log(log: &LogStatus) -> Vec<Finding> {
    let about = format!("log {}/{}", log.tenant, log.scope);
    let mut findings = Vec::new();
    for (what, refusal) in [("commits", &log.refusing), ("records and streams", &log.records_refusing)] {
        if let Some(error) = refusal {
            let what = format!("It refuses {what}: {error}.");
            findings.push(Finding::new(Severity::Critical, &*about, what, error.code().advice()));
        }
    }
    if let Some(sequencer) = &log.sequencer {
        if sequencer.held > 0 {
            let what = counted(sequencer.held, "commit", " held without sequence numbers.");
            let advice = format!(
                "`annals held list --tenant {}` lists each with its reason; docs/mongodb.md says what to do about each reason.",
                log.tenant
            );
            findings.push(Finding::new(Severity::Warning, &*about, what, advice));
        }
        if let Some(lag) = sequencer.lag_ms.filter(|lag| *lag > SEQUENCER_LAG_MAX_MS) {
            let what = format!("The sequencer lags {} s behind the newest commit.", lag / 1_000);
            let advice = "Check the logs of the leading process and the load on MongoDB.";
            findings.push(Finding::new(Severity::Warning, &*about, what, advice));
        }
    }
    let recovered = log.recovery.iter().map(|note| {
        let what = format!("Recovery reported when the log was opened: {note}.");
        Finding::new(
            Severity::Note,
            &*about,
            what,
            "Nothing to do; `annals check` verifies every byte of a closed store.",
        )
    });
    findings.extend(recovered);
    findings
}

fn undeclared(logs: Result<Vec<(String, String)>, annals_core::StoreError>) -> Vec<Finding> {
    let stored = |(tenant, scope): (String, String)| {
        let what = "It is stored but not declared, so nothing reads it.";
        let advice = "Declare it in the configuration under [tenants], names and scopes.";
        Finding::new(Severity::Warning, format!("log {tenant}/{scope}"), what, advice)
    };
    match logs {
        Ok(logs) => logs.into_iter().map(stored).collect(),
        Err(error) => {
            let what = format!("The stored logs cannot be listed: {error}.");
            vec![Finding::new(Severity::Critical, "store", what, error.code().advice_to_readers())]
        }
    }
}

fn of_processor(health: &ProcessorHealth) -> Option<Finding> {
    let reason = health.degraded.as_deref()?;
    let (kind, name, tenant) = (health.kind, &health.name, &health.tenant);
    let about = format!("{} {tenant}/{name}", kind.replace('_', " "));
    let advice = match kind {
        "handler" => {
            format!("`annals handler failing {name} --tenant {tenant}` shows what fails; then retry, skip or park it.")
        }
        "filter" => format!(
            "`annals filter show {name} --tenant {tenant}` shows the event and the reason; fix the cause, then put the filter again."
        ),
        "projection" => format!(
            "`annals projection show {name} --tenant {tenant}` shows the event and the reason; fix the cause, then put the projection again."
        ),
        "saga" => {
            format!(
                "`annals saga list --name {name} --tenant {tenant}` lists the sagas that need an operator; then retry or cancel them."
            )
        }
        "subscription" => format!(
            "`annals subscription show {name} --tenant {tenant}` shows the reason; check the producer and its consent."
        ),
        _ => "List the open ones, then retry or discard each.".to_owned(),
    };
    Some(Finding::new(Severity::Warning, about, sentence(reason), advice))
}

fn of_task(task: &TaskStatus) -> Option<Finding> {
    let error = task.last_error.as_deref().filter(|_| task.state == TaskState::Restarting)?;
    let what = format!("It failed {} times and is being restarted: {error}.", task.restarts);
    let advice = "Check the log of this process; the task resumes where it stopped.";
    Some(Finding::new(Severity::Warning, format!("task {}", task.name), what, advice))
}

fn of_relay(relay: &RelayStatus) -> Vec<Finding> {
    let about = format!("relay {}", relay.tenant);
    let mut findings = Vec::new();
    if let Some(error) = &relay.last_error {
        let what = format!("It cannot publish, and {} events are pending: {error}.", relay.lag);
        let advice = "Check that the brokers are running and reachable from this machine; commits continue meanwhile.";
        findings.push(Finding::new(Severity::Warning, &*about, what, advice));
    }
    if relay.held > 0 {
        let what = counted(relay.held, "event", " held, because the broker refused them.");
        let advice = "The collection annals-relay-held lists them; raise the message size limit of the topic, or leave them held.";
        findings.push(Finding::new(Severity::Warning, &*about, what, advice));
    }
    if let Some(fork) = &relay.fork {
        let what = format!(
            "The store was restored to {} events, of which {} were published: consumers have seen events that no longer exist.",
            fork.at, fork.published
        );
        let advice = "Tell the owners of the consumers; docs/kafka.md says how they find the fork.";
        findings.push(Finding::new(Severity::Warning, &*about, what, advice));
    }
    findings
}

/// Formats a reason as a sentence.
fn sentence(reason: &str) -> String {
    let mut characters = reason.trim_end_matches('.').chars();
    let first = characters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", characters.as_str())
}

#[cfg(test)]
mod tests {
    use annals_core::{SequencerStatus, StoreError, SyncTimes};

    use super::*;

    fn log() -> LogStatus {
        LogStatus {
            tenant: "acme".to_owned(),
            scope: "default".to_owned(),
            head: 7,
            refusing: None,
            records_refusing: None,
            commits: 0,
            syncs: 0,
            sync_times: SyncTimes::default(),
            bytes: 0,
            recovery: Vec::new(),
            sequencer: None,
        }
    }

    #[test]
    fn a_log_that_refuses_is_critical_and_one_with_held_commits_is_a_warning() {
        assert_eq!(of_log(&log()), []);
        let full = LogStatus { refusing: Some(StoreError::DiskFull("12 MiB are free".to_owned())), ..log() };
        let found = of_log(&full);
        assert_eq!((found.len(), found[0].severity, &*found[0].about), (1, Severity::Critical, "log acme/default"));
        assert!(found[0].what.contains("12 MiB are free"), "{}", found[0].what);
        let sequencer = SequencerStatus { leads: true, held: 2, lag_ms: Some(60_000) };
        let found = of_log(&LogStatus { sequencer: Some(sequencer), ..log() });
        let said: Vec<_> = found.iter().map(|finding| (finding.severity, &*finding.what)).collect();
        assert_eq!(
            said,
            [
                (Severity::Warning, "2 commits held without sequence numbers."),
                (Severity::Warning, "The sequencer lags 60 s behind the newest commit."),
            ]
        );
    }

    #[test]
    fn a_reason_becomes_a_sentence() {
        assert_eq!(sentence("partition \"a\" is blocked"), "Partition \"a\" is blocked.");
        assert_eq!(sentence("It waits."), "It waits.");
        assert_eq!(sentence(""), ".");
    }
}
