//! The document is in the repository, a file for each tag, so that a change of the API is seen where it is reviewed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::{document, operations};
use crate::running::Running;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi")
}

/// The files, by name.
fn files(document: &Value) -> BTreeMap<String, String> {
    let mut by_tag: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for (path, method, operation) in operations(document) {
        let tag = operation["tags"][0].as_str().expect("a tag").to_lowercase().replace(' ', "-");
        let item = by_tag.entry(tag).or_default().entry(path).or_insert_with(|| json!({}));
        item[method] = operation.clone();
    }
    let paths = by_tag.into_iter().map(|(tag, paths)| (tag, json!({ "paths": paths })));
    let mut rest = document.clone();
    let rest = rest.as_object_mut().expect("an object");
    rest.remove("paths");
    let components = rest.remove("components").expect("components");
    let others = [("components".to_owned(), components), ("openapi".to_owned(), Value::Object(rest.clone()))];
    let written = |value: &Value| serde_json::to_string_pretty(value).expect("JSON") + "\n";
    paths.chain(others).map(|(name, value)| (format!("{name}.json"), written(&value))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_that_is_checked_in_is_the_one_that_is_served() {
    let server = Running::start().await;
    let served = files(&document(&server).await);
    let folder = folder();
    if std::env::var_os("ANNALS_WRITE_DOCS").is_some() {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("docs/openapi");
        for (name, text) in &served {
            fs::write(folder.join(name), text).expect(name);
        }
        return;
    }
    let write = "run ANNALS_WRITE_DOCS=1 cargo test -p annals-server --test server checked_in to write docs/openapi";
    let there = fs::read_dir(&folder).expect(write).map(|entry| entry.expect("a file").file_name());
    let there: BTreeSet<_> = there.map(|name| name.into_string().expect("a name")).collect();
    assert_eq!(there, served.keys().cloned().collect(), "{write}");
    for (name, text) in served {
        assert!(fs::read_to_string(folder.join(&name)).expect(&name) == text, "docs/openapi/{name} differs; {write}");
    }
}
