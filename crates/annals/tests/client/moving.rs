//! A whole store moved from one backend to another.

use std::sync::Arc;

use annals::bson::{RawDocumentBuf, doc};
use annals::operations::{EXPORT_VERSION, ExportReader, Moved, OperationError, check, export};
use annals::{
    Code, Collection, CommitError, DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, Filter, KeyValue, LogQuery,
    NewCommit, NewEvent, NewTransaction, OpenOptions, RecordedEvent, Reserve, Store, Timestamp, Uuid,
};

const TENANTS: [&str; 2] = [DEFAULT_TENANT, "other"];
const SCOPES: [&str; 2] = [DEFAULT_SCOPE, "partner"];

pub async fn open(url: &str) -> Arc<dyn Store> {
    let tenants = TENANTS.map(str::to_owned).to_vec();
    let options = OpenOptions { tenants, scopes: vec!["partner".to_owned()], ..OpenOptions::default() };
    annals::open_with(url, options).await.expect("it opens")
}

/// `{"a": 1}` with an int32, which JSON reads back as an int64.
fn int32() -> Data {
    Data::from_stored(vec![12, 0, 0, 0, 0x10, b'a', 0, 1, 0, 0, 0, 0].into()).expect("BSON")
}

fn commit(n: usize) -> NewCommit {
    let data = Data::from_value(&serde_json::json!({ "n": n, "f": 1.0, "s": "\u{1}é\"" })).expect("an object");
    let event = NewEvent::new("placed", data).tag(format!("t-{}", n % 3));
    let mut commit = NewCommit::new("order", format!("o-{}", n % 5)).event(event);
    if n.is_multiple_of(3) {
        commit = commit.request_id(format!("r-{n}")).event(NewEvent::new("exact", int32()));
    }
    if n.is_multiple_of(4) {
        let given = NewEvent { id: Some(Uuid::from_u128(n as u128 + 1)), ..NewEvent::new("given", Data::empty()) };
        commit = commit.event(NewEvent { generation: 2, public: true, time: Some(Timestamp::from_millis(5)), ..given });
        let noted = serde_json::json!({ "trace": format!("t-{n}"), "attempt": n, "cost": 1.0 });
        let noted = NewEvent::new("noted", Data::empty()).with_metadata(&noted).expect("strings and numbers");
        commit = commit.event(noted);
        commit.header = vec![("k".into(), "v".into())];
        commit.tenant_id = Some("t".into());
        commit.owner_id = Some("o".into());
        commit.correlation_id = Some("c".into());
        commit.aggregate.id = format!("given-{n}").into();
    }
    commit
}

pub async fn filled(url: &str, commits: usize) -> Arc<dyn Store> {
    let store = open(url).await;
    for (tenant, scope) in TENANTS.iter().flat_map(|tenant| SCOPES.map(|scope| (*tenant, scope))) {
        let log = store.log(tenant, scope).expect("it is declared");
        for n in 0..commits {
            log.commit(commit(n)).await.expect("it is accepted");
        }
    }
    store
}

async fn events(store: &Arc<dyn Store>, tenant: &str, scope: &str) -> Vec<RecordedEvent> {
    let log = store.log(tenant, scope).expect("it is declared");
    let mut events = Vec::new();
    loop {
        let from = Some(events.len() as u64);
        let page = log.read(LogQuery { from, limit: 1_000, backwards: false, filter: Filter::default() }).await;
        let page = page.expect("it is read");
        if page.events.is_empty() {
            return events;
        }
        events.extend(page.events);
    }
}

pub async fn exported(store: &Arc<dyn Store>) -> Vec<u8> {
    let mut out = Vec::new();
    export(&**store, &mut out, &mut |done, all| assert!(done <= all)).await.expect("it is exported");
    out
}

pub async fn imported(bytes: &[u8], store: &Arc<dyn Store>) -> Result<Moved, OperationError> {
    ExportReader::new(bytes)?.import_into(&**store, &mut |done, all| assert!(done <= all)).await
}

/// The lines behind the first, which says when the export was made.
pub fn content(export: &[u8]) -> &[u8] {
    let end = export.iter().position(|byte| *byte == b'\n').expect("a line");
    &export[end..]
}

#[tokio::test]
async fn a_store_is_moved_whole_from_one_backend_to_another_and_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("embedded:{}/store", folder.path().display());
    let (first, second, third) = (filled("memory:", 300).await, open(&url).await, open("memory:").await);
    let bytes = exported(&first).await;
    let moved = imported(&bytes, &second).await.expect("it is imported");
    assert_eq!(moved.logs.len(), 4);
    let back = exported(&second).await;
    assert_eq!(content(&back), content(&bytes));
    imported(&back, &third).await.expect("it is imported");
    for (tenant, scope) in TENANTS.iter().flat_map(|tenant| SCOPES.map(|scope| (*tenant, scope))) {
        let all = events(&first, tenant, scope).await;
        assert_eq!(events(&second, tenant, scope).await, all);
        assert_eq!(events(&third, tenant, scope).await, all);
    }
    // Requests are remembered there too, and what comes next follows on.
    let (here, there) = (first.log("other", "partner").expect("a log"), second.log("other", "partner").expect("a log"));
    let again = there.commit(commit(3)).await.expect("a repeat");
    assert!(again.duplicate);
    assert_eq!(again, here.commit(commit(3)).await.expect("a repeat"));
    let version = |outcome: &annals::CommitOutcome| (outcome.first_sequence_number, outcome.version);
    let (new, same) = (there.commit(commit(1)).await.expect("taken"), here.commit(commit(1)).await.expect("taken"));
    assert_eq!(version(&new), version(&same));
    second.close().await;
    drop((second, there));
    assert!(check(&url, &mut |_, _| {}).expect("it can be checked").is_sound());
}

/// An early version wrote a commit's place in its transaction and not the transaction's id, which follows from the first commit.
#[tokio::test]
async fn an_export_without_the_ids_of_transactions_gives_the_same_store() {
    let first = open("memory:").await;
    let log = first.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
    log.commit(commit(1)).await.expect("it is accepted");
    for n in [10, 22] {
        let part = |id: usize| NewCommit { request_id: None, ..commit(n) }.event(commit(id).events.remove(0));
        let part = |id: usize| NewCommit { aggregate: annals::Aggregate::new("account", format!("{id}")), ..part(id) };
        log.transact(NewTransaction::new([part(1), part(2), part(3)])).await.expect("it is accepted");
    }
    let bytes = exported(&first).await;
    let text = String::from_utf8(bytes.clone()).expect("UTF-8");
    let mut early = String::new();
    for line in text.lines() {
        let mut line = line.to_owned();
        if let Some(start) = line.find(",\"transaction\":{\"id\"") {
            let length = line[start..].find('}').expect("it ends") + 1;
            line.replace_range(start..start + length, "");
        }
        early.extend([&*line, "\n"]);
    }
    assert_ne!(early, text);
    let second = open("memory:").await;
    imported(early.as_bytes(), &second).await.expect("it is imported");
    assert_eq!(content(&exported(&second).await), content(&bytes));
    imported(&bytes, &second).await.expect("it holds the same");
}

#[tokio::test]
async fn an_import_that_ended_early_goes_on_where_it_was() {
    let bytes = exported(&filled("memory:", 40).await).await;
    let target = open("memory:").await;
    for part in [0.2, 0.5, 0.51, 0.9] {
        let length = (bytes.len() as f64 * part) as usize;
        let error = imported(&bytes[..length], &target).await.expect_err("it ends early");
        assert_eq!(error.code, Code::InvalidBackup, "{error}");
        assert!(error.message.contains("truncated"), "{error}");
    }
    imported(&bytes, &target).await.expect("it is finished");
    imported(&bytes, &target).await.expect("once more changes nothing");
    assert_eq!(content(&exported(&target).await), content(&bytes));
}

#[tokio::test]
async fn what_is_no_whole_export_of_this_version_is_refused() {
    let bytes = exported(&filled("memory:", 10).await).await;
    let text = String::from_utf8(bytes.clone()).expect("UTF-8");
    let version = |version: u32| format!("\"annals_export\":{version}");
    let newer = text.replacen(&version(EXPORT_VERSION), &version(EXPORT_VERSION + 1), 1);
    let error = imported(newer.as_bytes(), &open("memory:").await).await.expect_err("it is newer");
    assert_eq!(error.code, Code::NewerFormat);
    for other in ["", "x", "{}\n", "{\"aggregate\":{\"name\":\"a\",\"id\":\"b\"},\"events\":[]}\n"] {
        let error = imported(other.as_bytes(), &open("memory:").await).await.expect_err("it is no export");
        assert_eq!(error.code, Code::InvalidBackup, "{other:?}");
    }
    // An event that was altered, left out, or given twice.
    let altered = text.replacen("\"n\":7", "\"n\":8", 1);
    let lines: Vec<&str> = text.lines().collect();
    let without = [&lines[..4], &lines[5..]].concat().join("\n") + "\n";
    let twice = [&lines[..5], &lines[4..]].concat().join("\n") + "\n";
    let joined = text.repeat(2);
    for wrong in [altered, without, twice, joined] {
        let error = imported(wrong.as_bytes(), &open("memory:").await).await.expect_err("it was altered");
        assert_eq!(error.code, Code::InvalidBackup, "{error}");
        assert!(error.message.starts_with("line "), "{error}");
    }
}

#[tokio::test]
async fn a_log_that_holds_other_events_is_left_alone() {
    let bytes = exported(&filled("memory:", 10).await).await;
    let mut others = Vec::new();
    for commits in [1, 11] {
        others.push(filled("memory:", commits).await);
    }
    for target in &others {
        let before = events(target, DEFAULT_TENANT, DEFAULT_SCOPE).await;
        let error = imported(&bytes, target).await.expect_err("it holds other events");
        assert_eq!(error.code, Code::OtherEvents, "{error}");
        assert_eq!(events(target, DEFAULT_TENANT, DEFAULT_SCOPE).await, before);
    }
    let undeclared = annals::open("memory:").await.expect("it opens");
    let error = imported(&bytes, &undeclared).await.expect_err("it lacks the tenant");
    assert!([Code::UnknownTenant, Code::UnknownScope].contains(&error.code));
}

#[tokio::test]
async fn an_import_that_is_refused_says_what_it_has_written() {
    let source = filled("memory:", 40).await;
    let records = source.records("other").expect("a tenant");
    records.declare(Collection::new("things")).await.expect("it is declared");
    for n in 0..3 {
        let thing = RawDocumentBuf::try_from(&doc! { "_id": n }).expect("a document");
        records.insert("things", thing).await.expect("it is inserted");
    }
    let bytes = exported(&source).await;
    let target = open("memory:").await;
    let first_line = bytes.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
    let error = imported(&bytes[..first_line], &target).await.expect_err("it ends early");
    assert!(error.message.ends_with("no event and no record was written"), "{error}");
    let error = imported(&bytes[..bytes.len() - 30], &target).await.expect_err("it ends early");
    let head = target.log("other", "partner").expect("a log").head().await.expect("its head");
    let logs = format!("the events 0 to {} of other/partner", head - 1);
    for part in ["written before that: 3 records of other", &logs, "resumes from there"] {
        assert!(error.message.contains(part), "{part}: {error}");
    }
    imported(&bytes, &target).await.expect("it goes on");
    assert_eq!(content(&exported(&target).await), content(&bytes));
}

#[tokio::test]
async fn a_copy_goes_to_its_number_or_nowhere() {
    let (from, to) = (filled("memory:", 3).await, open("memory:").await);
    let here = from.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("a log");
    let there = to.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("a log");
    let copies = here.read_copies(0).await.expect("they are read");
    let second = copies[1].commit.events[0].sequence_number;
    match there.store_copies(copies[1..].to_vec()).await {
        Err(CommitError::OtherEvents { expected, actual: 0 }) if expected == second => {}
        other => panic!("{other:?}"),
    }
    there.store_copies(copies.clone()).await.expect("they are in order");
    assert_eq!(there.read_copies(0).await.expect("they are read"), copies);
    let client = annals::Client::new("http://127.0.0.1:9", DEFAULT_TENANT, DEFAULT_SCOPE).expect("an address");
    assert_eq!(client.store_copies(copies).await.expect_err("a server takes none").code(), Code::NotSupportedByStore);
}

#[tokio::test]
async fn transactions_and_prepare_keys_are_moved_as_they_are() {
    let key = |key: &str| Reserve {
        name: "user_name".into(),
        key: key.into(),
        value: KeyValue::from_data(Data::from_value(&serde_json::json!({ "value": "u-1" })).expect("an object")),
        ttl_at: Some(Timestamp::from_millis(5)),
    };
    let part = |id: &str| NewCommit::new("account", id).event(NewEvent::new("moved", int32()));
    let reserving = |id: &str| {
        let mut commit = part(id);
        commit.keys.reserve.push(key(id));
        commit
    };
    let transfer = || NewTransaction::new([reserving("a"), part("b")]).request_id("transfer-1");
    let from = open("memory:").await;
    let here = from.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("a log");
    here.commit(commit(1)).await.expect("it is accepted");
    let first = here.transact(transfer()).await.expect("it is accepted");
    // The reservation has expired, so another one may be made; a copy of it is not judged by the time of the import.
    let mut again = part("c");
    again.keys.reserve.push(Reserve { ttl_at: None, ..key("a") });
    here.commit(again.clone()).await.expect("it is accepted");
    let bytes = exported(&from).await;
    let to = open("memory:").await;
    imported(&bytes, &to).await.expect("it is imported");
    assert_eq!(content(&exported(&to).await), content(&bytes));
    let there = to.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("a log");
    let repeat = there.transact(transfer()).await.expect("a repeat");
    let ids = |outcomes: &[annals::CommitOutcome]| -> Vec<_> {
        outcomes.iter().map(|it| (it.commit_id, it.version, it.first_sequence_number, it.event_ids.clone())).collect()
    };
    assert!(repeat.iter().all(|outcome| outcome.duplicate));
    assert_eq!(ids(&repeat), ids(&first));
    let taken = there.commit(again).await.expect_err("the key is held there too");
    assert_eq!(
        taken.code(),
        here.commit({
            let mut commit = part("d");
            commit.keys.reserve.push(key("a"));
            commit
        })
        .await
        .expect_err("held")
        .code()
    );
    // A part of a transaction is never imported alone.
    let text = String::from_utf8(bytes).expect("UTF-8");
    let lines: Vec<&str> = text.lines().collect();
    let cut = lines.iter().position(|line| line.contains("\"place\":1")).expect("the second part");
    let without = [&lines[..cut], &lines[cut + 1..]].concat().join("\n") + "\n";
    let target = open("memory:").await;
    assert!(imported(without.as_bytes(), &target).await.is_err());
    let half = lines[..=cut].join("\n") + "\n";
    let target = open("memory:").await;
    assert!(imported(half.as_bytes(), &target).await.is_err());
    let held = events(&target, DEFAULT_TENANT, DEFAULT_SCOPE).await.len();
    assert!([0, 1, 3].contains(&held), "{held} events are there");
}
