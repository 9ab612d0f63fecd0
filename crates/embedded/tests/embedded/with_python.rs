//! DuckDB and PyArrow read the files of the archive.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use annals_conformance::ManualClock;
use annals_conformance::model::EPOCH;
use annals_core::archive::{ArchiveTarget, RetentionBody};
use annals_core::browse::BrowseQuery;
use annals_core::{DEFAULT_SCOPE, DEFAULT_TENANT, Data, NewCommit, NewEvent, Store};
use annals_embedded::disk::MemoryDisk;
use annals_embedded::{EmbeddedStore, Options};
use annals_runtime::{ArchiveFolder, Host, HostOptions};
use serde_json::json;

use crate::stores::{block_on, roomy_segments};

const DAY: i64 = 24 * 60 * 60 * 1_000;
/// Reads the folders as columns, counts, and takes a field out of the documents.
const DUCKDB: &str = r#"
import sys, duckdb
files = f"read_parquet('{sys.argv[1]}/default/type=*/day=*/*.parquet', hive_partitioning = true)"
rows = duckdb.sql(f"SELECT type, count(*), min(sequence_number), sum(CAST(document ->> '$.total' AS BIGINT)) FROM {files} GROUP BY type ORDER BY type").fetchall()
print(rows)
print(duckdb.sql(f"SELECT DISTINCT typeof(timestamp), typeof(event_id), user_id FROM {files}").fetchall())
ids = duckdb.sql(f"SELECT count(DISTINCT event_id), min(aggregate_id), max(aggregate_id), count(execution_id) FROM {files}")
print(ids.fetchall())
rest = duckdb.sql(f"SELECT count(document ->> '$.event_id'), count(document ->> '$.note') FROM {files}")
print(rest.fetchall())
"#;
/// Does the same, and reads one type by its folder.
const PYARROW: &str = r#"
import sys, json, pyarrow.compute as pc, pyarrow.dataset as ds
files = ds.dataset(sys.argv[1] + "/default", format="parquet", partitioning="hive")
table = files.to_table().sort_by("sequence_number")
print([(row["type"], row["sequence_number_count"]) for row in table.group_by("type").aggregate([("sequence_number", "count")]).sort_by("type").to_pylist()])
print(table.schema.field("timestamp").type, table.schema.field("event_id").type, table.schema.field("sequence_number").type)
print(len(set(table.column("event_id").to_pylist())), table.column("aggregate_id").to_pylist(), table.column("execution_id").null_count)
print([json.loads(text)["total"] for text in table.column("document").to_pylist()])
placed = files.to_table(columns=["sequence_number"], filter=pc.field("type") == "placed")
print(sorted(placed.column("sequence_number").to_pylist()))
"#;

fn python(script: &str, arguments: &[&str]) -> String {
    let variable =
        |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set; run `cargo xtask test`"));
    let mut command = Command::new(variable("ANNALS_TEST_PYTHON"));
    command.env("PYTHONPATH", variable("ANNALS_TEST_PYTHON_PACKAGES")).args(["-c", script]).args(arguments);
    let ran = command.output().expect("python runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

#[test]
fn duckdb_and_pyarrow_read_the_files_of_the_archive() {
    block_on(async {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Arc::new(ManualClock::at(EPOCH));
        let options = Options { clock: clock.clone(), ..roomy_segments() };
        let store: Arc<dyn Store> =
            Arc::new(EmbeddedStore::open(Arc::new(MemoryDisk::default()), options).expect("it opens"));
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
        let files = Arc::new(ArchiveFolder::new(folder.path()));
        let options = HostOptions { clock: clock.clone(), archive: Some(files), ..HostOptions::default() };
        let host = Host::start(store, options);
        host.start_defined();
        let archive = host.archive(DEFAULT_TENANT).expect("declared");
        let rule = RetentionBody::new(Some(30), ArchiveTarget::Files);
        archive.put_rule("default", rule).await.expect("set");
        for n in 0..5_u64 {
            let data = Data::from_value(&json!({ "total": n, "note": "ü \"quoted\"" })).expect("a document");
            let event_type = if n == 4 { "paid" } else { "placed" };
            let mut commit = NewCommit::new("order", format!("o-{n}")).event(NewEvent::new(event_type, data));
            commit.header = vec![("user_id".into(), "ada".into())];
            log.commit(commit).await.expect("committed");
        }
        host.browse(DEFAULT_TENANT).expect("declared").page(BrowseQuery::default()).await.expect("a page");
        clock.advance_millis(32 * DAY);
        let archived = async {
            while archive.rules(None, 1).await.expect("read").archive.archived < 5 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), archived).await.expect("archived in time");
        // A file that is being written is none of theirs.
        let writing = folder.path().join(DEFAULT_TENANT).join(".writing/other-0");
        std::fs::create_dir_all(&writing).expect("created");
        std::fs::write(writing.join("a.parquet"), "PAR1, and no more of it yet").expect("written");
        let place = folder.path().display().to_string();
        let out = python(DUCKDB, &[&place]);
        let lines: Vec<_> = out.lines().collect();
        assert_eq!(lines[0], "[('paid', 1, 4, 4), ('placed', 4, 0, 6)]", "{out}");
        assert_eq!(lines[1], "[('TIMESTAMP WITH TIME ZONE', 'VARCHAR', 'ada')]", "{out}");
        assert_eq!(lines[2], "[(5, 'o-0', 'o-4', 0)]", "{out}");
        assert_eq!(lines[3], "[(0, 5)]", "what a column has is not in the document: {out}");
        let out = python(PYARROW, &[&place]);
        let lines: Vec<_> = out.lines().collect();
        assert_eq!(lines[0], "[('paid', 1), ('placed', 4)]", "{out}");
        assert_eq!(lines[1], "timestamp[ms, tz=UTC] string int64", "{out}");
        assert_eq!(lines[2], "5 ['o-0', 'o-1', 'o-2', 'o-3', 'o-4'] 5", "{out}");
        assert_eq!(lines[3], "[0, 1, 2, 3, 4]", "{out}");
        assert_eq!(lines[4], "[0, 1, 2, 3]", "{out}");
        host.drain().await;
    });
}
