//! Programs in Python meet a real server. The name of this file leaves it out where there is no Python: see CONTRIBUTING.md.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::process::Server;
use crate::run::{folder, run, run_with};

/// The interpreter, with the public packages that tests use and those of a test.
fn python(own: Option<&Path>) -> Command {
    let of =
        |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is unset: cargo xtask services python"));
    let packages = own.map(Path::to_path_buf).into_iter().chain([PathBuf::from(of("ANNALS_TEST_PYTHON_PACKAGES"))]);
    let mut command = Command::new(of("ANNALS_TEST_PYTHON"));
    command.env("PYTHONPATH", std::env::join_paths(packages).expect("paths")).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

fn script(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/python").join(name)
}

/// Generates a client from the document that the server serves.
fn generate(folder: &Path, server: &Server) {
    let mut fetch = python(None);
    let saves = "import sys, urllib.request; urllib.request.urlretrieve(sys.argv[1], sys.argv[2])";
    fetch.args(["-c", saves, &format!("{}/openapi.json", server.url)]).arg(folder.join("openapi.json"));
    assert!(fetch.status().expect("Python runs").success());
    // What formats the generated code afterwards is not needed to run it.
    fs::write(folder.join("generator.yml"), "post_hooks: []\n").expect("written");
    let mut generator = python(None);
    generator.args(["-m", "openapi_python_client", "generate", "--meta", "none", "--path"]);
    generator.arg(folder.join("openapi.json")).arg("--config").arg(folder.join("generator.yml"));
    generator.arg("--output-path").arg(folder.join("annals_client"));
    let generated = generator.output().expect("it runs");
    let said = String::from_utf8_lossy(&generated.stdout);
    assert!(generated.status.success(), "{said}{}", String::from_utf8_lossy(&generated.stderr));
    // It leaves out the forms of bodies and answers that it does not know, and nothing else.
    let lines: Vec<_> = said.lines().map(str::trim).collect();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("WARNING")) {
        let why = lines[at + 1..].iter().find(|line| !line.is_empty()).copied().unwrap_or_default();
        assert!(why.to_lowercase().contains("unsupported content"), "{line} {why}");
    }
    assert!(!lines.iter().any(|line| line.starts_with("ERROR")), "{said}");
}

#[test]
fn a_client_that_is_generated_from_the_openapi_document_commits_reads_and_follows() {
    let folder = folder();
    let folder = folder.path();
    let server = Server::start(folder);
    generate(folder, &server);
    let mut every_module = python(Some(folder));
    let imports = "import importlib, pkgutil, annals_client as it\n\
                   names = [m.name for m in pkgutil.walk_packages(it.__path__, 'annals_client.')]\n\
                   [importlib.import_module(name) for name in names]\nprint(len(names))";
    let imported = every_module.args(["-c", imports]).output().expect("it runs");
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    let ran = python(Some(folder)).arg(script("commit_read_follow.py")).arg(&server.url).output().expect("it runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let said: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    assert_eq!(said, json!({"followed": [10, 20, 30]}));
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_client_that_is_generated_from_the_protocol_commits_follows_and_processes() {
    let folder = folder();
    let folder = folder.path();
    let server = Server::start(folder);
    let client = folder.join("client");
    fs::create_dir(&client).expect("a folder");
    let mut generator = python(None);
    generator.args(["-m", "grpc_tools.protoc", "-I"]).arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto"));
    generator.args(["python_out", "grpc_python_out"].map(|out| format!("--{out}={}", client.display())));
    let generated = generator.arg("annals/v1/annals.proto").output().expect("it runs");
    assert!(generated.status.success(), "{}", String::from_utf8_lossy(&generated.stderr));
    let mut program = python(Some(&client));
    let ran = program.arg(script("grpc_commit_follow_process.py")).arg(&server.url).output().expect("it runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let said: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    assert_eq!(said, json!({"followed": [10, 20, 30], "processed": [[0, 1], [0, 2], [1, 1], [2, 1]]}));
    assert_eq!(server.terminate(), Some(0));
}

/// A partner in Python.
struct Partner {
    process: Child,
    input: ChildStdin,
    out: BufReader<ChildStdout>,
}

impl Partner {
    fn start(secret: &str) -> Self {
        let mut command = python(None);
        command.arg(script("partner.py")).arg(secret).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("Python runs");
        let (input, out) = (process.stdin.take().expect("piped"), process.stdout.take().expect("piped"));
        Self { process, input, out: BufReader::new(out) }
    }

    fn write(&mut self, line: &str) {
        writeln!(self.input, "{line}").and_then(|()| self.input.flush()).expect("written");
    }

    /// The next line that it prints.
    fn says(&mut self) -> Value {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line:?}"))
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

#[test]
fn signatures_are_verified_and_made_by_the_public_library_of_standard_webhooks() {
    let folder = folder();
    let folder = folder.path();
    let server = Server::start(folder);
    let mut partner = Partner::start(SECRET);
    partner.write(&format!("{}/v1/partners/python/events", server.url));
    let url = partner.says()["url"].as_str().expect("a URL").to_owned();
    let put = |secrets: &[&str]| {
        let select = json!({"field": "type", "operator": "EQ", "value": "order_placed"});
        let definition = json!({"name": "Python", "url": url, "secrets": secrets, "select": select});
        run_with(
            folder,
            &["partner", "put", "python", "--file", "-", "--server", &server.url],
            &definition.to_string(),
        )
        .ok();
    };
    let commit = |id: &str| {
        let aggregate = format!("order/{id}");
        let commit = ["commit", "--server", &server.url, "--aggregate", &aggregate, "--type", "order_placed"];
        run(folder, &[&commit[..], &["--data", r#"{"total":12.5,"name":"Zoë"}"#]].concat()).ok();
    };
    // While secrets are rotated, deliveries are signed with both.
    put(&[OTHER, SECRET]);
    commit("o-1");
    let received = partner.says();
    assert_eq!(received["received"]["data"], json!({"total": 12.5, "name": "Zoë"}), "{received}");
    put(&[SECRET]);
    commit("o-2");
    assert_eq!(partner.says()["received"]["subject"], "order/o-2");

    partner.write(r#"{"type":"order_shipped","subject":"o-1","data":{"parcel":"Zoë"}}"#);
    let accepted = partner.says();
    assert_eq!(accepted["status"], 202, "{accepted}");
    put(&[OTHER]);
    partner.write(r#"{"type":"order_shipped","subject":"o-2","data":{}}"#);
    let refused = partner.says();
    assert_eq!((&refused["status"], &refused["answer"]["code"]), (&json!(401), &json!("invalid_signature")));
    commit("o-3");
    assert!(partner.says()["refused"].is_string(), "the library refuses another secret");
    let committed =
        ["partner", "events", "python", "--direction", "IN", "--status", "SUCCESS", "--server", &server.url];
    assert!((0..1_000).any(|_| run(folder, &committed).ok().json().len() == 1), "it is committed");
    let logged = run(folder, &["log", "read", "--server", &server.url, "--types", "order_shipped"]).ok().json();
    assert_eq!((logged.len(), &logged[0]["data"]), (1, &json!({"parcel": "Zoë"})), "{logged:?}");
    assert_eq!(server.terminate(), Some(0));
}
