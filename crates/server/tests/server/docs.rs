//! The documentation says what the code says.

use std::fmt::Write;
use std::path::PathBuf;

use annals_core::Code;

fn document(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

fn table() -> String {
    let mut table = String::from("| code | status | exit | meaning | what to do |\n|---|---|---|---|---|\n");
    for code in Code::ALL {
        let (name, status, exit, meaning, advice) =
            (code.as_str(), code.status(), code.exit(), code.meaning(), code.advice());
        writeln!(table, "| `{name}` | {status} | {exit} | {meaning} | {advice} |").expect("writes to a string");
    }
    table
}

#[test]
fn the_table_of_errors_is_that_of_the_code() {
    const MARKS: [&str; 2] = ["<!-- the table begins -->\n", "<!-- the table ends -->\n"];
    let path = document("errors.md");
    let text = std::fs::read_to_string(&path).expect("docs/errors.md");
    let (before, rest) = text.split_once(MARKS[0]).expect("the mark where the table begins");
    let (shown, after) = rest.split_once(MARKS[1]).expect("the mark where the table ends");
    let table = table();
    if std::env::var_os("ANNALS_WRITE_DOCS").is_some() {
        let text = format!("{before}{}{table}{}{after}", MARKS[0], MARKS[1]);
        std::fs::write(&path, text).expect("docs/errors.md is written");
        return;
    }
    assert_eq!(shown, table, "run ANNALS_WRITE_DOCS=1 cargo test -p annals-server docs to write the table anew");
}

#[test]
fn the_description_of_the_api_names_every_address_and_parameter() {
    let text = std::fs::read_to_string(document("http.md")).expect("docs/http.md");
    for part in [
        "POST /v1/commits",
        "POST /v1/transactions",
        "GET /v1/aggregates\n",
        "GET /v1/aggregates/{name}",
        "GET /v1/aggregates/{name}/{id}/commits",
        "GET /v1/aggregates/{name}/{id}/requests/{request_id}",
        "GET /v1/log",
        "GET /v1/log/{sequence_number}",
        "GET /v1/log/follow",
        "GET /v1/streams",
        "GET /v1/streams/{name}",
        "POST /v1/streams/{name}/verdicts",
        "GET /v1/streams/{name}/positions/{sequence_number}",
        "GET /v1/streams/{name}/state",
        "`partition`",
        "`past`",
        "`timeout_ms`",
        "`without_partition`",
        "GET /v1/keys/{name}`",
        "GET /v1/keys/{name}/{key}",
        "PUT /v1/keys/{name}/{key}",
        "DELETE /v1/keys/{name}/{key}",
        "POST /v1/keys/{name}/{key}/rollback",
        "`old_value`",
        "`old_key`",
        "GET /v1/records/collections",
        "GET /v1/records/collections/{collection}",
        "PUT /v1/records/collections/{collection}",
        "GET /v1/records/collections/{collection}/ids/{id}",
        "POST /v1/records/collections/{collection}/get",
        "POST /v1/records/collections/{collection}/find",
        "POST /v1/records/collections/{collection}/count",
        "POST /v1/records/changes",
        "GET /v1/records/collections/{collection}/changes",
        "GET /v1/records/collections/{collection}/changes/last",
        "GET /v1/records/collections/{collection}/changes/follow",
        "`feed`",
        "`ejson`",
        "`collection`",
        "application/ejson",
        "PUT /v1/snapshots/{aggregate}",
        "PUT /v1/snapshots/{aggregate}/{id}",
        "GET /v1/snapshots/{aggregate}/{id}",
        "DELETE /v1/snapshots/{aggregate}/{id}",
        "`version`",
        "POST /v1/query/{aggregate}/snapshots/single",
        "POST /v1/query/{aggregate}/commits/{single|list|paged|count|explain}",
        "`pagination`",
        "GET /v1/stats",
        "GET /v1/sequencer",
        "GET /v1/held",
        "POST /v1/held/retry",
        "POST /v1/held/accept",
        "GET /v1/backup",
        "POST /v1/backup",
        "POST /v1/credentials",
        "GET /v1/credentials",
        "GET /v1/credentials/{id}",
        "DELETE /v1/credentials/{id}",
        "GET /v1/audit",
        "GET /health/live",
        "GET /health/ready",
        "GET /metrics",
        "GET /v1`",
        "GET /openapi.json",
        "GET /annals.proto",
        "`from=end`",
        "`traceparent`",
        "`from_version`",
        "`to_version`",
        "`from_time`",
        "`to_time`",
        "`limit`",
        "`last`",
        "`tenant_id`",
        "`after`",
        "`from`",
        "`types`",
        "`tags`",
        "`aggregate`",
        "`backwards`",
        "`scope`",
        "`Annals-Tenant`",
        "`Last-Event-ID`",
        "application/x-ndjson",
    ] {
        assert!(text.contains(part), "{part} is not in docs/http.md");
    }
}

#[test]
fn every_example_with_a_body_names_its_content_type() {
    let root = document("..");
    let guides = std::fs::read_dir(document("")).expect("docs").map(|entry| entry.expect("a file").path());
    let mut bodies = 0;
    for path in guides.filter(|path| path.is_file()).chain([root.join("README.md")]) {
        let text = std::fs::read_to_string(&path).expect("a guide").replace("\\\n", " ");
        for line in text.lines().filter(|line| line.starts_with("curl ")) {
            let has_body = [" -d ", " --data"].iter().any(|flag| line.contains(flag));
            bodies += usize::from(has_body);
            assert!(!has_body || line.contains("-H 'Content-Type: "), "{}: {line}", path.display());
        }
    }
    assert!(bodies >= 10, "only {bodies} examples with a body were found");
}
