//! The path of a newcomer, from an empty folder: a secured server, a key, events from curl and from Python, the console in a real
//! Chromium, a handler that breaks, and the page that mends it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::browser::{Browser, ENTER};
use crate::process::{Server, annals};
use crate::run::folder;

/// What turns red is seen to be red within this time.
const SEEN: Duration = Duration::from_secs(10);

/// Only the standard library: commits an event, follows the log until it has seen it, and pulls and fails an event where it is asked to.
const PROGRAM: &str = r#"
import json, sys, urllib.request
url, key, act = sys.argv[1:4]

def ask(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
    return urllib.request.urlopen(urllib.request.Request(url + path, data, headers, method=method), timeout=30)

if act == "follow":
    event = {"type": "order_placed", "data": {"total": 8, "by": "python"}}
    commit = {"aggregate": {"name": "order", "id": "o-2"}, "events": [event]}
    number = json.load(ask("POST", "/v1/commits", commit))["events"][0]["sequence_number"]
    for line in ask("GET", "/v1/log/follow?from=0"):
        if line.startswith(b"data:"):
            event = json.loads(line[5:])
            if event["sequence_number"] == number:
                print(json.dumps(event))
                break
else:
    pulled = json.load(ask("POST", "/v1/handlers/billing/pull", {"worker": "python", "max": 1, "wait_ms": 20000}))
    result = {"token": pulled["deliveries"][0]["token"]}
    if act == "fail":
        result["failure"] = {"reason": "the printer burns", "never": True}
    print(json.dumps(json.load(ask("POST", "/v1/handlers/billing/settle", {"results": [result]}))))
"#;

struct Newcomer<'a> {
    folder: &'a Path,
    url: String,
}

impl Newcomer<'_> {
    /// Creates a key with the command line.
    fn key(&self, admin: Option<&str>, name: &str, role: &str) -> String {
        let mut command = annals(self.folder);
        command.args(["credential", "create", "--name", name, "--role", role, "--output", "json"]);
        match admin {
            Some(admin) => command.args(["--server", &self.url]).env("ANNALS_CREDENTIAL", admin),
            None => command.args(["--store", "embedded:./data"]),
        };
        let created: Value = serde_json::from_str(&said(command)).expect("JSON");
        created["key"].as_str().expect("a key").to_owned()
    }

    fn curl(&self, key: &str, method: &str, path: &str, body: &Value) -> Value {
        let mut command = Command::new("curl");
        command.args(["-sS", "--fail-with-body", "--max-time", "30", "-X", method, "-H", &bearer(key)]);
        if !body.is_null() {
            command.args(["-H", "Content-Type: application/json", "-d", &body.to_string()]);
        }
        command.arg(format!("{}{path}", self.url));
        serde_json::from_str(&said(command)).expect("JSON")
    }

    /// Follows the log with curl until an event of a type comes.
    fn follow(&self, key: &str, event_type: &str) -> Value {
        let mut command = Command::new("curl");
        command.args(["-sSN", "--max-time", "30", "-H", &bearer(key), &format!("{}/v1/log/follow?from=0", self.url)]);
        let mut curl = command.stdout(Stdio::piped()).spawn().expect("curl runs");
        let lines = BufReader::new(curl.stdout.take().expect("piped")).lines();
        let mut events = lines.map_while(Result::ok).filter_map(|line| {
            let event = serde_json::from_str::<Value>(line.strip_prefix("data:")?);
            event.ok()
        });
        let found = events.find(|event| event["type"] == event_type);
        drop(events);
        let _ = curl.kill();
        let _ = curl.wait();
        found.expect("the event comes within 30 s")
    }

    fn python(&self, key: &str, act: &str) -> Value {
        let mut command = Command::new("python3");
        command.args(["-c", PROGRAM, &self.url, key, act]);
        serde_json::from_str(&said(command)).expect("JSON")
    }
}

fn bearer(key: &str) -> String {
    format!("Authorization: Bearer {key}")
}

/// What a program prints that succeeds.
fn said(mut command: Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{:?} runs: {error}", command.get_program()));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{:?}: {}{}", command.get_program(), text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_starts_secured_uses_curl_and_python_and_mends_a_broken_handler_in_the_browser() {
    let folder = folder();
    let mut newcomer = Newcomer { folder: folder.path(), url: String::new() };
    let admin = newcomer.key(None, "admin", "admin");
    let mut command = annals(folder.path());
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    let server = Server::of(command);
    newcomer.url.clone_from(&server.url);
    let shop = newcomer.key(Some(&admin), "shop", "writer");

    let event = json!({"type": "order_placed", "data": {"total": 7, "by": "curl"}});
    let commit = json!({"aggregate": {"name": "order", "id": "o-1"}, "events": [event]});
    assert_eq!(newcomer.curl(&shop, "POST", "/v1/commits", &commit)["events"][0]["sequence_number"], 0);
    assert_eq!(newcomer.follow(&shop, "order_placed")["data"]["by"], "curl");
    assert_eq!(newcomer.python(&shop, "follow")["data"]["by"], "python");
    let retry = json!({"attempts": 1, "then": "block"});
    let handler = json!({"partition_by": "aggregate", "types": ["order_placed"], "retry": retry});
    newcomer.curl(&admin, "PUT", "/v1/handlers/billing", &handler);

    let browser = Browser::start().await;
    let page = |path: &str| format!("{}{path}", server.url);
    browser.go_to(&page("/")).await;
    browser.until("document.activeElement.name === 'credential'").await;
    browser.press(&admin).await;
    browser.press(ENTER).await;
    browser.until("document.querySelector('h1')?.textContent === 'Overview'").await;
    browser.go_to(&page("/console/events")).await;
    browser.until("document.querySelectorAll('#events tbody tr').length === 2").await;
    browser.go_to(&page("/console/log?search=python")).await;
    browser.until("document.querySelectorAll('#events tbody tr').length === 1").await;
    browser.go_to(&page("/")).await;
    browser.until("document.getElementById('link').dataset.state === 'live'").await;
    browser.until("document.querySelector('#attention .good')").await;

    assert_eq!(newcomer.python(&shop, "fail")["results"][0]["settled"], true);
    let red =
        browser.until("document.querySelector('#attention .notice.bad')?.textContent.includes('the printer burns')");
    assert!(tokio::time::timeout(SEEN, red).await.is_ok(), "it is not red after {SEEN:?}");
    browser.picture("newcomer-red").await;

    browser.evaluate("document.querySelector('#attention .notice.bad a').click()").await;
    browser.until("document.querySelector('h1')?.textContent === 'Handler billing'").await;
    browser
        .evaluate("[...document.querySelectorAll('#failing a.act')].find(act => act.textContent === 'Retry').click()")
        .await;
    browser.until("document.activeElement.name === 'reason'").await;
    browser.press("the printer is new").await;
    browser.press(ENTER).await;
    browser.until("document.querySelector('.notice.good')?.textContent.startsWith('Done.')").await;
    // The mended worker gets the event again, and the one of the other order.
    for _ in 0..2 {
        assert_eq!(newcomer.python(&shop, "work")["results"][0]["settled"], true);
    }
    browser.go_to(&page("/")).await;
    browser.until("document.querySelector('#attention .good')").await;
    browser.has_no_errors("the path of a newcomer").await;
    let mended = newcomer.curl(&admin, "GET", "/v1/handlers/billing", &Value::Null);
    assert_eq!((&mended["failing"], &mended["blocked"]), (&json!(0), &json!(0)), "{mended}");
    let audit = newcomer.curl(&admin, "GET", "/v1/audit", &Value::Null);
    assert!(audit.to_string().contains("the printer is new"), "{audit}");
    browser.end().await;
    assert_eq!(server.terminate(), Some(0));
}
