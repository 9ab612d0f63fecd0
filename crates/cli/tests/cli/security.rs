//! A server that asks who calls: the first key, TLS, and where keys are never found.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::process::{annals, kept_log, signal};
use crate::run::{Ran, folder, run};

/// The certificates of the server's own tests.
fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../server/tests/fixtures").join(name)
}

/// Runs the binary with a key in its environment.
pub fn run_as(folder: &Path, key: &str, arguments: &[&str]) -> Ran {
    let mut command = annals(folder);
    let output = command.args(arguments).env("ANNALS_CREDENTIAL", key).output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Ran { code: output.status.code().expect("a code"), out: text(output.stdout), err: text(output.stderr) }
}

/// A server whose whole log is in the file `server.log`.
pub struct Logged {
    process: Child,
    pub url: String,
    log: PathBuf,
    _out: BufReader<std::process::ChildStdout>,
}

impl Logged {
    fn start(folder: &Path) -> Self {
        let mut command = annals(folder);
        command.args(["serve", "--listen", "127.0.0.1:0"]).env("ANNALS__LOG__LEVEL", "trace");
        Self::of(command, folder)
    }

    /// Starts what `command` says, with the log in this folder.
    pub fn of(mut command: Command, folder: &Path) -> Self {
        let log = File::create(folder.join("server.log")).expect("a file");
        let mut process = command.stdout(Stdio::piped()).stderr(log).spawn().expect("it starts");
        let mut out = BufReader::new(process.stdout.take().expect("piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        let log = || fs::read_to_string(folder.join("server.log")).expect("a log");
        let url = line.split_whitespace().find(|word| word.starts_with("http")).unwrap_or_else(|| panic!("{}", log()));
        Self { url: url.replace("127.0.0.1", "localhost"), process, log: folder.join("server.log"), _out: out }
    }

    /// Stops it and returns its log.
    pub fn stop(mut self, folder: &Path) -> String {
        signal("TERM", self.process.id());
        assert_eq!(self.process.wait().expect("it ends").code(), Some(0));
        fs::read_to_string(folder.join("server.log")).expect("a log")
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Ok(mut log) = File::open(&self.log) {
            let _ = std::io::copy(&mut log, &mut kept_log(self.process.id()));
        }
    }
}

/// The id and the key of a credential that was created.
pub fn key_of(ran: Ran) -> (String, String) {
    let created = ran.ok().json().remove(0);
    let text = |name: &str| created[name].as_str().expect(name).to_owned();
    (text("id"), text("key"))
}

const CREATE: [&str; 6] = ["credential", "create", "--store", "embedded:./data", "--output", "json"];

#[test]
fn a_secured_server_lets_in_who_has_a_key_over_tls_and_keys_are_found_nowhere() {
    let folder = folder();
    let folder = folder.path();
    let (_, admin) = key_of(run(folder, &[&CREATE[..], &["--name", "admin", "--role", "admin"]].concat()));
    let tls =
        format!("[tls]\ncertificate_file = {:?}\nkey_file = {:?}\n", fixture("server.pem"), fixture("server.key"));
    fs::write(folder.join("annals.toml"), tls).expect("written");
    let server = Logged::start(folder);
    assert!(server.url.starts_with("https://"), "{}", server.url);
    let ca = fixture("ca.pem").display().to_string();
    let there = ["--server", &server.url, "--ca", &ca];
    let commit = ["commit", "--aggregate", "order/o-1", "--type", "order_placed", "--data", "{}"];
    let said = run(folder, &[&commit[..], &there].concat()).refused("unauthenticated", 2);
    assert!(said.contains("annals credential create") || said.contains("Bearer"), "{said}");
    run_as(folder, &admin, &[&commit[..], &there].concat()).ok();
    assert_eq!(run_as(folder, &admin, &[&["log", "read"][..], &there].concat()).ok().json().len(), 1);
    // Without the authority the certificate is worth nothing.
    assert_eq!(
        run_as(
            folder,
            &admin,
            &["log", "read", "--server", &server.url, "--ca", &fixture("foreign-ca.pem").display().to_string()]
        )
        .code,
        5
    );
    let create = ["credential", "create", "--name", "web", "--role", "reader"];
    let (id, reader) = key_of(run_as(folder, &admin, &[&create[..], &there].concat()));
    fs::write(folder.join("web.key"), format!("{reader}\n")).expect("written");
    let with_file = [&["log", "read", "--credential-file", "web.key"][..], &there].concat();
    assert_eq!(run(folder, &with_file).ok().json().len(), 1);
    let refused = run_as(folder, &reader, &[&commit[..], &there].concat()).refused("forbidden", 2);
    run_as(folder, &admin, &[&["credential", "revoke", &id, "--reason", "a test"][..], &there].concat()).ok();
    let revoked = run(folder, &with_file).refused("unauthenticated", 2);
    let audit = run_as(folder, &admin, &[&["audit"][..], &there].concat()).ok();
    let what: Vec<Value> = audit.json().iter().map(|act| act["what"].clone()).collect();
    assert_eq!(what, ["revokeCredential", "createCredential", "createCredential"], "{}", audit.out);
    assert_eq!(audit.json()[2]["who"], "machine");
    let config = run_as(folder, &admin, &["config", "show", "--credential-file", "web.key"]).ok();
    let list = run_as(folder, &admin, &[&["credential", "list"][..], &there].concat()).ok();
    let log = server.stop(folder);
    assert!(log.contains("an administrative act"), "{log}");
    for key in [&admin, &reader] {
        let secret = key.rsplit('_').next().expect("a secret");
        for (place, text) in [
            ("the log", &log),
            ("the configuration", &config.out),
            ("the list", &list.out),
            ("the audit log", &audit.out),
            ("a refusal", &refused),
            ("a refusal of a revoked key", &revoked),
        ] {
            assert!(!text.contains(secret), "{place} holds a key");
        }
    }
}

#[test]
fn without_a_key_or_without_tls_a_server_refuses_to_start_and_says_what_to_do() {
    let folder = folder();
    let folder = folder.path();
    run(folder, &["commit", "--aggregate", "order/o-1", "--type", "t"]).ok();
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    let said = run(folder, &serve).refused("invalid_config", 2);
    assert!(said.contains("annals credential create"), "{said}");
    let (id, _) = key_of(run(folder, &[&CREATE[..], &["--name", "admin", "--role", "admin"]].concat()));
    let said = run(folder, &["serve", "--listen", "0.0.0.0:0"]).refused("invalid_config", 2);
    assert!(said.contains("--insecure-http") && said.contains("tls.certificate_file"), "{said}");
    run(folder, &["credential", "revoke", &id]).ok();
    // A revoked key opens nothing.
    run(folder, &serve).refused("invalid_config", 2);
    fs::write(folder.join("annals.toml"), "[tls]\ncertificate_file = \"absent.pem\"\n").expect("written");
    assert!(run(folder, &serve).refused("invalid_config", 2).contains("tls.key_file"));
    fs::write(folder.join("annals.toml"), "[tls]\ncertificate_file = \"absent.pem\"\nkey_file = \"absent.key\"\n")
        .expect("written");
    assert!(run(folder, &serve).refused("invalid_config", 2).contains("absent.pem"));
    let issuer = "[security]\nissuers = { a = { issuer = \"https://id.example\", audience = \"x\", algorithms = [\"HS256\"] } }\n";
    fs::write(folder.join("annals.toml"), issuer).expect("written");
    assert!(run(folder, &serve).refused("invalid_config", 2).contains("HS256"));
}

#[test]
fn a_key_of_an_administrator_is_for_all_tenants_unless_one_is_named() {
    let folder = folder();
    let folder = folder.path();
    let named = vec!["--tenant", "acme"];
    let widened = [&named[..], &["--tenants", "*"]].concat();
    let default = vec!["--tenant", "default"];
    for (tenant, due) in [(vec![], "*"), (named, "acme"), (default, "default"), (widened, "*")] {
        let created = run(folder, &[&CREATE[..], &["--name", "admin", "--role", "admin"], &tenant].concat()).ok();
        assert_eq!(created.json().remove(0)["tenants"], serde_json::json!([due]));
    }
}

#[test]
fn a_reason_with_control_characters_forges_no_line_of_the_audit_log() {
    let folder = folder();
    let folder = folder.path();
    let reason = "lost\u{1b}[2K\n2026-01-01T00:00:00.000Z  key:0  deleteHandler";
    run(folder, &[&CREATE[..], &["--name", "admin", "--role", "admin", "--reason", reason]].concat()).ok();
    let audit = run(folder, &["audit", "--output", "table"]).ok().out;
    assert_eq!(audit.lines().count(), 1, "{audit}");
    assert!(audit.contains("lost\\u{1b}[2K\\n2026-01-01"), "{audit}");
}

#[test]
fn a_key_of_event_types_is_for_those_who_read_and_write_and_one_of_streams_for_those_who_read() {
    let folder = folder();
    let folder = folder.path();
    let writer = ["--name", "shop", "--role", "writer", "--event-types", "paid,shipped"];
    let created = run(folder, &[&CREATE[..], &writer].concat()).ok().json().remove(0);
    assert_eq!(created["event_types"], serde_json::json!(["paid", "shipped"]));
    let operator = ["--name", "ops", "--role", "operator", "--event-types", "paid"];
    let said = run(folder, &[&CREATE[..], &operator].concat()).refused("invalid_credential", 2);
    assert!(said.contains("event_types"), "{said}");
    let reader = ["--name", "partner", "--role", "reader", "--streams", "public-orders"];
    let created = run(folder, &[&CREATE[..], &reader].concat()).ok().json().remove(0);
    assert_eq!(created["streams"], serde_json::json!(["public-orders"]));
    let writer = ["--name", "partner", "--role", "writer", "--streams", "public-orders"];
    let said = run(folder, &[&CREATE[..], &writer].concat()).refused("invalid_credential", 2);
    assert!(said.contains("streams"), "{said}");
    let both = [&reader[..], &["--event-types", "paid"]].concat();
    let said = run(folder, &[&CREATE[..], &both].concat()).refused("invalid_credential", 2);
    assert!(said.contains("streams"), "{said}");
}

#[test]
fn a_server_is_called_by_the_names_of_its_configuration_and_by_no_other() {
    let folder = folder();
    let folder = folder.path();
    run(folder, &[&CREATE[..], &["--name", "admin", "--role", "admin"]].concat()).ok();
    let mut command = annals(folder);
    command.args(["serve", "--listen", "127.0.0.1:0"]).env("ANNALS__SERVER__NAMES", "annals");
    let server = Logged::of(command, folder);
    let port = server.url.rsplit(':').next().expect("a port").to_owned();
    let named = format!("host: annals:{port}\r\n");
    for (hosts, status) in [
        ("host: annals\r\n", "200"),
        (&*named, "200"),
        ("host: 127.0.0.1\r\n", "200"),
        ("host: other\r\n", "403"),
        ("host: annals.other\r\n", "403"),
        ("host: annals\r\nhost: annals\r\n", "403"),
        ("host: annals\r\nhost: other\r\n", "403"),
    ] {
        let mut stream = std::net::TcpStream::connect(format!("127.0.0.1:{port}")).expect("a connection");
        write!(stream, "GET /health/live HTTP/1.1\r\n{hosts}connection: close\r\n\r\n").expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{hosts:?}: {answer}");
        assert_eq!(answer.contains("forbidden_origin"), status == "403", "{hosts:?}: {answer}");
    }
    server.stop(folder);
}
