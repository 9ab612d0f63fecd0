//! The credentials and the audit log of a store on MongoDB, which two servers share. The name of this file leaves it out where there is no
//! MongoDB: see CONTRIBUTING.md.

use std::path::Path;

use serde_json::Value;

use crate::process::{Server, annals};
use crate::run::{folder, run};
use crate::security::{key_of, run_as};
use crate::with_mongodb_serve::{Database, get, server, until};

/// Serves the store at `url` to callers with a key, and waits until it is ready.
fn secured(folder: &Path, url: &str) -> Server {
    let mut command = annals(folder);
    command.env("ANNALS__STORE__URL", url).args(["serve", "--listen", "127.0.0.1:0"]);
    let server = Server::of(command);
    until("a ready server", || get(&server, "/health/ready").0 == 200);
    server
}

#[test]
fn a_key_that_is_revoked_at_one_server_is_refused_at_the_other_and_the_audit_log_lists_it() {
    let (folder, database) = (folder(), Database::new());
    let folder = folder.path();
    let url = format!("mongodb://{}/{}?directConnection=true", server(), database.0);
    let first = ["credential", "create", "--store", &url, "--output", "json", "--name", "admin", "--role", "admin"];
    let (_, admin) = key_of(run(folder, &first));
    let (one, two) = (secured(folder, &url), secured(folder, &url));
    let at = |server: &Server, key: &str, arguments: &[&str]| {
        run_as(folder, key, &[arguments, &["--server", &server.url]].concat())
    };
    let read = ["log", "read"];
    let (id, reader) = key_of(at(&one, &admin, &["credential", "create", "--name", "web", "--role", "reader"]));
    at(&one, &reader, &read).ok();
    until("the new key is known at the other server", || at(&two, &reader, &read).code == 0);

    at(&one, &admin, &["credential", "revoke", &id, "--reason", "a test"]).ok();
    at(&one, &reader, &read).refused("unauthenticated", 2);
    until("the revoked key is refused at the other server", || at(&two, &reader, &read).code != 0);
    let refused = at(&two, &reader, &read).refused("unauthenticated", 2);
    assert!(refused.contains("revoked"), "{refused}");

    // Acts are listed once their events have sequence numbers.
    let acts = || at(&two, &admin, &["audit"]).ok().json();
    until("three acts are done", || {
        let acts = acts();
        acts.len() == 3 && acts.iter().all(|act| act["outcome"] == "done")
    });
    let acts = acts();
    let what: Vec<Value> = acts.iter().map(|act| act["what"].clone()).collect();
    assert_eq!(what, ["revokeCredential", "createCredential", "createCredential"], "{acts:?}");
    assert!(acts[0]["why"] == "a test" && acts[0]["path"].to_string().contains(&id), "{acts:?}");
    assert_eq!(acts[2]["who"], "machine", "the first key was created past the servers");
    assert_eq!(run(folder, &["audit", "--store", &url]).ok().json(), acts, "the store lists the same");
}
