//! Diagnoses a deployment of MongoDB for operators: its members, write lag, oplog, cache and clock. Each check is optional: if the user
//! lacks the right, or the server is a mongos without an answer, there is no finding.

use std::time::Duration;

use annals_core::Clock;
use annals_core::doctor::{Diagnosis, Finding, Severity};
use mongodb::Client;
use mongodb::bson::{Bson, DateTime, Document, doc};

use crate::cache;

/// The subject of every finding here.
const ABOUT: &str = "MongoDB";
/// Timeout of each check.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// Commits wait for a majority, so every caller notices a majority that lags more than this.
const WRITE_LAG_MAX: Duration = Duration::from_secs(5);
/// Maximum difference between the clocks of this process and of the primary: times of commits come from one, those of log entries from the
/// other.
const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(5);
/// Hours that a full oplog should cover: a sequencer that was away for longer must read the collections instead.
const OPLOG_HOURS: i64 = 24;

/// Runs all checks against the primary.
pub(crate) async fn examine(client: &Client, clock: &dyn Clock) -> Diagnosis {
    let Some(hello) = asked(client, doc! { "hello": 1 }).await else {
        let what = "The primary did not answer within 2 s.";
        let advice = "Check that the members run and that this machine reaches them.";
        return Diagnosis::new(vec![ABOUT.to_owned()], vec![Finding::new(Severity::Critical, ABOUT, what, advice)]);
    };
    let version = asked(client, doc! { "buildInfo": 1 }).await;
    let version = version.as_ref().and_then(|info| info.get_str("version").ok()).unwrap_or("of an unknown version");
    let mut findings = of_hello(&hello, DateTime::from_millis(clock.now().as_millis()));
    findings.extend(of_cache(cache::size(client).await));
    if let Some(set) = asked(client, doc! { "replSetGetStatus": 1 }).await {
        findings.extend(of_members(&set));
    }
    findings.extend(oplog(client).await);
    Diagnosis::new(vec![format!("MongoDB {version}, {}", topology(&hello))], findings)
}

/// Returns the server's response; `None` if the user lacks the right, or the server does not respond in time.
async fn asked(client: &Client, command: Document) -> Option<Document> {
    let admin = client.database("admin");
    tokio::time::timeout(ANSWER_TIME_MAX, admin.run_command(command).into_future()).await.ok()?.ok()
}

fn topology(hello: &Document) -> String {
    let members = hello.get_array("hosts").map_or(0, Vec::len);
    match hello.get_str("setName") {
        Ok(name) => format!("replica set {name} of {members} member{}", if members == 1 { "" } else { "s" }),
        Err(_) => "a sharded cluster".to_owned(),
    }
}

fn of_hello(hello: &Document, now: DateTime) -> Vec<Finding> {
    let mut findings = Vec::new();
    if hello.get_array("hosts").is_ok_and(|hosts| hosts.len() == 1) {
        let what = "The replica set has one member, so a lost disk loses the store.";
        findings.push(Finding::new(Severity::Note, ABOUT, what, "Add members, or take backups elsewhere."));
    }
    let write = |name: &str| hello.get_document("lastWrite").and_then(|write| write.get_datetime(name)).ok();
    if let (Some(last), Some(majority)) = (write("lastWriteDate"), write("majorityWriteDate")) {
        let behind = between(*majority, *last);
        if behind > WRITE_LAG_MAX {
            let what = format!(
                "The majority of the members is {} s behind the primary; commits wait for it.",
                behind.as_secs()
            );
            let advice =
                "Find the slow or absent secondary (rs.status()), and bring it back or remove it from the set.";
            findings.push(Finding::new(Severity::Warning, ABOUT, what, advice));
        }
    }
    if let Ok(theirs) = hello.get_datetime("localTime") {
        let difference = between(*theirs, now).max(between(now, *theirs));
        if difference > CLOCK_DIFFERENCE_MAX {
            let what = format!("Its clock and this machine's differ by {} s.", difference.as_secs());
            findings.push(Finding::new(Severity::Warning, ABOUT, what, "Synchronise both clocks by NTP."));
        }
    }
    findings
}

fn of_cache(bytes: Option<i64>) -> Option<Finding> {
    let bytes = bytes.filter(|bytes| *bytes < cache::DUE_BYTES)?;
    let mib = |bytes: i64| bytes / 1024 / 1024;
    let what = format!(
        "Its cache has {} MiB. All events of a commit are one transaction, and one that is too large for the cache is held.",
        mib(bytes)
    );
    let advice =
        format!("Set storage.wiredTiger.engineConfig.cacheSizeGB so that it has {} MiB.", mib(cache::DUE_BYTES));
    Some(Finding::new(Severity::Warning, ABOUT, what, advice))
}

/// Returns findings about members that are not healthy.
fn of_members(set: &Document) -> Vec<Finding> {
    let Ok(members) = set.get_array("members") else { return Vec::new() };
    let unwell = members.iter().filter_map(Bson::as_document).filter_map(|member| {
        let state = member.get_str("stateStr").ok()?;
        if ["PRIMARY", "SECONDARY", "ARBITER"].contains(&state) {
            return None;
        }
        let name = member.get_str("name").unwrap_or("a member");
        let said = member.get_str("lastHeartbeatMessage").unwrap_or_default();
        let why = if said.is_empty() { String::new() } else { format!(": {said}") };
        let advice = format!("Look at the log of {name}; without a majority no commit is taken.");
        Some(Finding::new(Severity::Warning, ABOUT, format!("The member {name} is {state}{why}."), advice))
    });
    unwell.collect()
}

/// Returns a finding if the oplog is full and short; `None` if the user may not read it.
async fn oplog(client: &Client) -> Option<Finding> {
    let local = client.database("local");
    let entries = local.collection::<Document>("oplog.rs");
    let time = |newest: bool| {
        let found = entries.find_one(doc! {}).sort(doc! { "$natural": if newest { -1 } else { 1 } });
        async move {
            let found = tokio::time::timeout(ANSWER_TIME_MAX, found.into_future()).await.ok()?.ok()??;
            found.get_timestamp("ts").ok().map(|at| i64::from(at.time))
        }
    };
    let stats = local.run_command(doc! { "collStats": "oplog.rs" });
    let stats = tokio::time::timeout(ANSWER_TIME_MAX, stats.into_future()).await.ok()?.ok()?;
    of_oplog(&stats, time(true).await? - time(false).await?)
}

fn of_oplog(stats: &Document, seconds: i64) -> Option<Finding> {
    let bytes = |name: &str| match stats.get(name)? {
        Bson::Int32(bytes) => Some(i64::from(*bytes)),
        Bson::Int64(bytes) => Some(*bytes),
        // A server may report sizes as doubles; their fractions do not matter.
        Bson::Double(bytes) => Some(*bytes as i64),
        _ => None,
    };
    let (size, max) = (bytes("size")?, bytes("maxSize")?);
    // An oplog that is not full contains everything that was ever written.
    if size < max / 10 * 9 || seconds >= OPLOG_HOURS * 3600 {
        return None;
    }
    let what = format!(
        "Its oplog reaches back {:.1} h. A sequencer that was away for longer reads the collections instead.",
        seconds as f64 / 3600.0
    );
    Some(Finding::new(Severity::Warning, ABOUT, what, "Enlarge it by replSetResizeOplog until it holds a day."))
}

/// Returns the time between two dates; zero if the second one is not later.
fn between(from: DateTime, to: DateTime) -> Duration {
    Duration::from_millis(u64::try_from(to.timestamp_millis() - from.timestamp_millis()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> DateTime {
        DateTime::from_millis(1_000 * seconds)
    }

    #[test]
    fn a_majority_that_lags_and_a_clock_that_is_off_are_found() {
        let hello = doc! {
            "setName": "rs0", "hosts": ["a", "b", "c"], "localTime": at(100),
            "lastWrite": { "lastWriteDate": at(100), "majorityWriteDate": at(90) },
        };
        let found = of_hello(&hello, at(109));
        let said: Vec<_> = found.iter().map(|finding| (finding.severity, &*finding.what)).collect();
        assert_eq!(
            said,
            [
                (Severity::Warning, "The majority of the members is 10 s behind the primary; commits wait for it."),
                (Severity::Warning, "Its clock and this machine's differ by 9 s."),
            ]
        );
        let well = doc! {
            "setName": "rs0", "hosts": ["a", "b", "c"], "localTime": at(100),
            "lastWrite": { "lastWriteDate": at(100), "majorityWriteDate": at(99) },
        };
        assert_eq!(of_hello(&well, at(101)), []);
        assert_eq!(topology(&well), "replica set rs0 of 3 members");
    }

    #[test]
    fn a_small_cache_an_absent_member_and_a_short_oplog_are_found() {
        assert!(of_cache(Some(268_435_456)).is_some_and(|finding| finding.what.contains("256 MiB")));
        assert_eq!(of_cache(Some(cache::DUE_BYTES)), None);
        assert_eq!(of_cache(None), None, "nobody may ask");
        let set = doc! { "members": [
            { "name": "a:27017", "stateStr": "PRIMARY" },
            { "name": "b:27017", "stateStr": "(not reachable/healthy)", "lastHeartbeatMessage": "Connection refused" },
        ] };
        let found = of_members(&set);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].what, "The member b:27017 is (not reachable/healthy): Connection refused.");
        let full = doc! { "size": 99.0, "maxSize": 100_i64 };
        assert!(of_oplog(&full, 7_200).is_some_and(|finding| finding.what.contains("2.0 h")));
        assert_eq!(of_oplog(&full, 100_000), None, "it holds a day");
        assert_eq!(of_oplog(&doc! { "size": 10, "maxSize": 100_i64 }, 60), None, "it is not full");
    }
}
