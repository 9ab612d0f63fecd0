//! Every metric that the files for Grafana and Prometheus name is exported.

use std::collections::BTreeSet;

use annals_core::queue::{QueueCounts, QueueDefinition, QueueStatus};
use annals_core::relay::{RelayState, RelayStatus};
use annals_core::{Code, LogStatus, SequencerStatus, SyncCounter, SyncTimes};
use annals_runtime::{
    GroupMetrics, PartnerMetrics, ProcessorHealth, RetryMetrics, TaskState, TaskStatus, TenantQueueStatus,
};

use super::{
    Metrics, write_groups, write_partner_failures, write_partners, write_processors, write_queues, write_retries,
};

const DASHBOARD: &str = include_str!("../../../../deploy/grafana-dashboard.json");
const ALERTS: &str = include_str!("../../../../deploy/alerts.yaml");

const GUIDE: &str = include_str!("../../../../docs/operations.md");

/// Everything that a server with every feature exports.
fn exported() -> String {
    let metrics = Metrics::new(["/v1/commits"]);
    metrics.route("/v1/commits").answered(201, std::time::Duration::from_millis(1));
    metrics.refused(Code::VersionConflict);
    let mut text = metrics.text(&[log()], &[task()], &[relay()]);
    write_processors(&mut text, Some(&[processor()]));
    let queue =
        QueueStatus { definition: QueueDefinition::new("q"), counts: QueueCounts::default(), oldest_seconds: 0 };
    let partner = PartnerMetrics {
        tenant: "default".to_owned(),
        partner: "acme".to_owned(),
        attempts: vec![("OUT", "failed", 1)],
        retries: vec![("OUT", 0)],
        received: vec![("accepted", 1)],
        is_failing: true,
    };
    write_partners(&mut text, std::slice::from_ref(&partner));
    write_partner_failures(&mut text, &[partner], &[]);
    write_queues(&mut text, Some(&[TenantQueueStatus { tenant: "default".into(), queue }]));
    write_retries(&mut text, &[retries()]);
    text
}

fn log() -> LogStatus {
    let sequencer = SequencerStatus { leads: true, lag_ms: Some(1), ..SequencerStatus::default() };
    LogStatus {
        tenant: "default".to_owned(),
        scope: "default".to_owned(),
        head: 1,
        refusing: None,
        records_refusing: None,
        commits: 1,
        syncs: 1,
        sync_times: SyncTimes::default(),
        bytes: 1,
        recovery: Vec::new(),
        sequencer: Some(sequencer),
    }
}

fn retries() -> RetryMetrics {
    RetryMetrics { tenant: "default".to_owned(), kind: "handler", processor: "a".to_owned(), events: 3, letters: 1 }
}

fn task() -> TaskStatus {
    TaskStatus {
        name: "handler/a".to_owned(),
        state: TaskState::Running,
        restarts: 0,
        last_error: None,
        last_failed: None,
    }
}

fn relay() -> RelayStatus {
    RelayStatus {
        tenant: "default".to_owned(),
        state: RelayState::Publishing,
        position: 0,
        head: 0,
        lag: 0,
        published: 0,
        held: 0,
        fork: None,
        last_error: None,
    }
}

fn processor() -> ProcessorHealth {
    ProcessorHealth {
        tenant: "default".to_owned(),
        kind: "handler",
        name: "a".to_owned(),
        position: 0,
        head: 0,
        lag_seconds: 0,
        seconds_since_progress: 0,
        failing: 0,
        blocked: 0,
        letters: 0,
        owner: None,
        degraded: None,
    }
}

/// The names of metrics in a text: of series, and of the histogram they belong to.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("annals_")).collect()
}

#[test]
fn every_metric_of_the_dashboard_and_of_the_alert_rules_is_exported() {
    let exported = exported();
    let series: BTreeSet<&str> = exported
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect();
    for (file, text) in [("grafana-dashboard.json", DASHBOARD), ("alerts.yaml", ALERTS)] {
        let names = named(text);
        assert!(names.len() > 8, "{file} names {names:?}");
        let missing: Vec<_> = names.iter().filter(|name| !series.contains(**name)).collect();
        assert!(missing.is_empty(), "{file} names metrics that no server exports: {missing:?}");
    }
}

#[test]
fn the_guide_to_operations_says_what_to_do_about_every_alert() {
    let alerts: Vec<_> = ALERTS.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10);
    for alert in &alerts {
        assert!(GUIDE.contains(&format!("| `{alert}` | ")), "{alert}");
    }
    assert_eq!(GUIDE.matches("| `Annals").count(), alerts.len(), "the guide names an alert that is not there");
}

#[test]
fn the_dashboard_is_json_whose_panels_have_titles_queries_and_places_of_their_own() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut places = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().expect("a title");
        assert!(panel["targets"].as_array().is_some_and(|targets| !targets.is_empty()), "{title}");
        assert!(panel["description"].as_str().is_some_and(|text| text.ends_with('.')), "{title}");
        let place = &panel["gridPos"];
        assert!(places.insert((place["x"].as_u64(), place["y"].as_u64())), "{title} lies on another panel");
    }
    assert!(panels.len() >= 10);
}

#[test]
fn duplicates_of_a_group_are_counted_under_its_name_and_no_group_has_no_family() {
    let mut text = String::new();
    write_groups(&mut text, &[]);
    assert_eq!(text, "");
    let of = |group: &str, duplicates| GroupMetrics { tenant: "default".into(), group: group.into(), duplicates };
    write_groups(&mut text, &[of("billing", 49), of("shipping", 0)]);
    assert!(text.contains("# TYPE annals_group_duplicates_total counter\n"), "{text}");
    for line in ["{tenant=\"default\",group=\"billing\"} 49", "{tenant=\"default\",group=\"shipping\"} 0"] {
        assert!(text.contains(&format!("annals_group_duplicates_total{line}\n")), "{text}");
    }
}

#[test]
fn retries_of_events_and_of_letters_are_counted_apart_under_the_names_of_processors() {
    let text = exported();
    let labels = "{tenant=\"default\",kind=\"handler\",processor=\"a\"}";
    for (name, count) in [("annals_processor_retries_total", 3), ("annals_dead_letter_retries_total", 1)] {
        assert!(text.contains(&format!("# TYPE {name} counter\n{name}{labels} {count}\n")), "{text}");
    }
    assert!(text.contains("annals_partner_retries_total{tenant=\"default\",partner=\"acme\",direction=\"OUT\"} 0\n"));
}

#[test]
fn the_time_of_a_sync_is_in_its_bucket_and_in_all_longer_ones() {
    let counter = SyncCounter::default();
    for micros in [200, 2_000, 9_000_000] {
        counter.synced(std::time::Duration::from_micros(micros));
    }
    let log = LogStatus { sync_times: counter.times(), ..log() };
    let text = Metrics::new(["/v1/commits"]).text(&[log], &[], &[]);
    for (end, count) in [("0.0001", 0), ("0.00025", 1), ("0.001", 1), ("0.0025", 2), ("5", 2), ("+Inf", 3)] {
        let bucket = format!("_bucket{{tenant=\"default\",scope=\"default\",le=\"{end}\"}} {count}\n");
        assert!(text.contains(&format!("annals_log_sync_duration_seconds{bucket}")), "{end}: {text}");
    }
    for line in ["_sum{tenant=\"default\",scope=\"default\"} 9.0022", "_count{tenant=\"default\",scope=\"default\"} 3"]
    {
        assert!(text.contains(&format!("annals_log_sync_duration_seconds{line}\n")), "{text}");
    }
}
