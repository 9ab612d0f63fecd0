//! A headless Chromium, driven by the WebDriver protocol.
//!
//! The protocol is a few requests with JSON, so the tests speak it themselves: a library for it turns on features of serde_json that would
//! change the programs under test. The tests of the command line use this file too.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// No wait for a page takes longer; reaching it is a failure.
const DEADLINE: Duration = Duration::from_secs(30);

/// Keys without a letter, as the protocol names them.
pub const TAB: &str = "\u{e004}";
pub const ENTER: &str = "\u{e007}";
pub const SHIFT: &str = "\u{e008}";

/// A browser, which ends with the test.
pub struct Browser {
    session: String,
    client: reqwest::Client,
    _chromedriver: Child,
}

impl Browser {
    /// Starts one. `cargo xtask services chromium` says where the programs are; otherwise they are those on the path.
    pub async fn start() -> Self {
        let (chromedriver, url) = started().await;
        let arguments =
            ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900"];
        // Tests of other programs may run as root and with little shared memory.
        let mut options = json!({ "args": arguments });
        if let Ok(binary) = std::env::var("ANNALS_TEST_CHROMIUM") {
            options["binary"] = binary.into();
        }
        let wanted = json!({ "goog:chromeOptions": options, "goog:loggingPrefs": { "browser": "ALL" } });
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let mut browser = Self { session: format!("{url}/session"), client, _chromedriver: chromedriver };
        let begun = browser.post("", json!({ "capabilities": { "alwaysMatch": wanted } })).await;
        let id = begun["sessionId"].as_str().unwrap_or_else(|| panic!("Chromium starts: {begun}"));
        browser.session = format!("{url}/session/{id}");
        browser
    }

    async fn ask(&self, method: Method, path: &str, body: Value) -> Value {
        let url = format!("{}{}{path}", self.session, if path.is_empty() { "" } else { "/" });
        let mut request = self.client.request(method.clone(), url);
        if method == Method::POST {
            request = request.body(body.to_string());
        }
        let answer = request.send().await.expect("an answer").bytes().await.expect("a body");
        serde_json::from_slice::<Value>(&answer).expect("JSON")["value"].take()
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.ask(Method::POST, path, body).await
    }

    async fn text(&self, path: &str) -> String {
        self.ask(Method::GET, path, json!(null)).await.as_str().unwrap_or_default().to_owned()
    }

    async fn devtools(&self, command: &str, parameters: Value) {
        self.post("goog/cdp/execute", json!({ "cmd": command, "params": parameters })).await;
    }

    /// Fails if the console of the browser has an error, such as a script that the policy refused.
    pub async fn has_no_errors(&self, at: &str) {
        let log = self.post("se/log", json!({ "type": "browser" })).await;
        let errors: Vec<_> = log.as_array().expect("a log").iter().filter(|line| line["level"] == "SEVERE").collect();
        assert!(errors.is_empty(), "{at}: {errors:?}");
    }

    /// Keeps a picture in `target/console`.
    pub async fn picture(&self, name: &str) {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/console");
        std::fs::create_dir_all(&folder).expect("a folder");
        let picture = BASE64_STANDARD.decode(self.text("screenshot").await).expect("a picture");
        std::fs::write(folder.join(format!("{name}.png")), picture).expect("written");
    }

    /// Looks as a person with these settings does.
    pub async fn look(&self, dark: bool, width: u32) {
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": features })).await;
        let metrics = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    pub async fn evaluate(&self, script: &str) -> Value {
        self.post("execute/sync", json!({ "script": script, "args": [] })).await
    }

    /// Waits until an expression is true in the page. While a page is replaced by another one, nothing is true.
    pub async fn until(&self, expression: &str) {
        let script = format!("return Boolean({expression})");
        let asked = async { while self.evaluate(&script).await != json!(true) {} };
        let so = tokio::time::timeout(DEADLINE, asked).await.is_ok();
        assert!(so, "{expression}: {}", self.source().await);
    }

    pub async fn title(&self) -> String {
        self.text("title").await
    }

    pub async fn source(&self) -> String {
        self.text("source").await
    }

    pub async fn go_to(&self, url: &str) {
        let shown = self.post("url", json!({ "url": url })).await;
        assert_eq!(shown, json!(null), "{url} is shown");
    }

    /// Types a text, or presses a key.
    pub async fn press(&self, keys: &str) {
        let pressed = keys.chars().flat_map(|key| [down(&key.to_string()), up(&key.to_string())]).collect();
        self.act(pressed).await;
    }

    /// Presses a key while another one is down.
    pub async fn press_with(&self, held: &str, key: &str) {
        self.act(vec![down(held), down(key), up(key), up(held)]).await;
    }

    async fn act(&self, keys: Vec<Value>) {
        let done =
            self.post("actions", json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": keys }] })).await;
        assert_eq!(done, json!(null), "it is pressed");
    }

    pub async fn end(self) {
        self.ask(Method::DELETE, "", json!(null)).await;
    }
}

fn down(key: &str) -> Value {
    json!({ "type": "keyDown", "value": key })
}

fn up(key: &str) -> Value {
    json!({ "type": "keyUp", "value": key })
}

/// A chromedriver, and its URL.
async fn started() -> (Child, String) {
    let program = std::env::var("ANNALS_TEST_CHROMEDRIVER").unwrap_or_else(|_| "chromedriver".to_owned());
    let mut command = Command::new(program);
    command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut chromedriver = command.spawn().expect(
        "there is a chromedriver; `cargo xtask services --fetch chromium` fetches it, ANNALS_TEST_CHROMEDRIVER names it",
    );
    let mut lines = BufReader::new(chromedriver.stdout.take().expect("piped")).lines();
    let port = loop {
        let line = lines.next_line().await.expect("text").expect("it says its port");
        if let Some((_, rest)) = line.split_once("successfully on port ") {
            break rest.trim_end_matches('.').to_owned();
        }
    };
    // What it says later is read, or it would wait for a reader.
    tokio::spawn(async move { while lines.next_line().await.is_ok_and(|line| line.is_some()) {} });
    (chromedriver, format!("http://127.0.0.1:{port}"))
}
