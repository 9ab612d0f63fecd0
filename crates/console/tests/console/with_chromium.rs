//! Every page in a real headless Chromium. Pictures of them are in `target/console`.

use std::path::PathBuf;
use std::process::Stdio;

use annals_console::listing;
use serde_json::{Value, json};
use thirtyfour::prelude::*;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::running::{DEADLINE, Running, detail};

/// A browser, which ends with the test.
pub struct Browser {
    pub driver: WebDriver,
    session: String,
    client: reqwest::Client,
    _chromedriver: Child,
}

impl Browser {
    /// Starts one. `cargo xtask services chromium` says where the programs are; otherwise they are those on the path.
    pub async fn start() -> Self {
        let named = |name: &str, usual: &str| std::env::var(name).unwrap_or_else(|_| usual.to_owned());
        let mut command = Command::new(named("ANNALS_TEST_CHROMEDRIVER", "chromedriver"));
        command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut chromedriver = command
            .spawn()
            .expect("there is a chromedriver; `cargo xtask services --fetch chromium` fetches it, ANNALS_TEST_CHROMEDRIVER names it");
        let mut lines = BufReader::new(chromedriver.stdout.take().expect("piped")).lines();
        let port = loop {
            let line = lines.next_line().await.expect("text").expect("it says its port");
            if let Some((_, rest)) = line.split_once("successfully on port ") {
                break rest.trim_end_matches('.').to_owned();
            }
        };
        // What it says later is read, or it would wait for a reader.
        tokio::spawn(async move { while lines.next_line().await.is_ok_and(|line| line.is_some()) {} });
        let mut capabilities = DesiredCapabilities::chrome();
        if let Ok(binary) = std::env::var("ANNALS_TEST_CHROMIUM") {
            capabilities.set_binary(&binary).expect("a path");
        }
        // Tests of other programs may run as root and with little shared memory.
        for argument in
            ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900"]
        {
            capabilities.add_arg(argument).expect("an argument");
        }
        capabilities.set("goog:loggingPrefs", json!({"browser": "ALL"})).expect("a capability");
        let url = format!("http://127.0.0.1:{port}");
        let driver = WebDriver::new(&url, capabilities).await.expect("Chromium starts");
        let session = format!("{url}/session/{}", driver.session_id());
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        Self { driver, session, client, _chromedriver: chromedriver }
    }

    async fn command(&self, path: &str, body: Value) -> Value {
        let request = self.client.post(format!("{}/{path}", self.session)).body(body.to_string());
        let answer = request.send().await.expect("an answer").bytes().await.expect("a body");
        serde_json::from_slice::<Value>(&answer).expect("JSON")["value"].take()
    }

    async fn devtools(&self, command: &str, parameters: Value) {
        self.command("goog/cdp/execute", json!({"cmd": command, "params": parameters})).await;
    }

    /// Fails if the console of the browser has an error, such as a script that the policy refused.
    pub async fn has_no_errors(&self, at: &str) {
        let log = self.command("se/log", json!({"type": "browser"})).await;
        let errors: Vec<_> = log.as_array().into_iter().flatten().filter(|line| line["level"] == "SEVERE").collect();
        assert!(errors.is_empty(), "{at}: {errors:?}");
    }

    /// Keeps a picture in `target/console`.
    pub async fn picture(&self, name: &str) {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/console");
        std::fs::create_dir_all(&folder).expect("a folder");
        self.driver.screenshot(&folder.join(format!("{name}.png"))).await.expect("a picture");
    }

    /// Looks as a person with these settings does.
    pub async fn look(&self, dark: bool, width: u32) {
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.devtools("Emulation.setEmulatedMedia", json!({"features": features})).await;
        let metrics = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600});
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    pub async fn evaluate(&self, script: &str) -> Value {
        self.driver.execute(script, Vec::new()).await.expect("it runs").json().clone()
    }

    /// Waits until an expression is true in the page.
    pub async fn until(&self, expression: &str) {
        let script = format!("return Boolean({expression})");
        let asked =
            async { while self.driver.execute(&script, Vec::new()).await.is_ok_and(|so| so.json() != &json!(true)) {} };
        let so = tokio::time::timeout(DEADLINE, asked).await.is_ok();
        assert!(so, "{expression}: {}", self.driver.source().await.unwrap_or_default());
    }

    pub async fn go(&self, server: &Running, path: &str) {
        self.driver.goto(server.url(path)).await.expect("it is shown");
    }

    pub async fn end(self) {
        self.driver.quit().await.expect("it ends");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_shown_without_errors_in_the_dark_and_on_a_phone_and_runs_nothing_that_is_stored() {
    let server = Running::dev().await;
    server.fill("default").await;
    server.fail("default").await;
    let browser = Browser::start().await;
    for page in listing() {
        let name = page.path.strip_prefix("/console/").unwrap_or("overview");
        let detail = detail(&page.path).map(|detail| (format!("{}?{detail}", page.path), format!("{name}-detail")));
        for (address, name) in [Some((page.path.clone(), name.to_owned())), detail].into_iter().flatten() {
            browser.look(false, 1280).await;
            browser.go(&server, &address).await;
            if page.live {
                browser.until("document.getElementById('link').dataset.state === 'live'").await;
            }
            assert_eq!(browser.driver.title().await.expect("a title"), format!("{} · Annals", page.title), "{address}");
            assert_eq!(
                browser.evaluate("return document.querySelectorAll('script:not([src]), main img').length").await,
                json!(0),
                "{address}"
            );
            let light = browser.evaluate("return getComputedStyle(document.body).backgroundColor").await;
            browser.picture(&name).await;
            browser.look(true, 390).await;
            browser.go(&server, &address).await;
            let dark = browser.evaluate("return getComputedStyle(document.body).backgroundColor").await;
            assert_ne!(light, dark, "{address}");
            let wide = browser.evaluate("return document.documentElement.scrollWidth - 390").await;
            assert!(wide.as_i64().is_some_and(|wide| wide <= 0), "{address} is {wide} pixels wider than a phone");
            browser.picture(&format!("{name}-phone")).await;
            browser.has_no_errors(&address).await;
        }
    }
    // Acts show the event they are about, and the reason it failed for.
    for act in listing().into_iter().flat_map(|page| page.acts) {
        let address = format!("{}?{}", act.path, crate::running::parameters());
        browser.go(&server, &address).await;
        assert_ne!(browser.driver.title().await.expect("a title"), "hacked", "{address}");
        assert_eq!(
            browser.evaluate("return document.querySelectorAll('script:not([src]), main img').length").await,
            json!(0),
            "{address}"
        );
    }
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_handler_turns_the_overview_red_while_it_is_looked_at() {
    let server = Running::dev().await;
    server.fill("default").await;
    let browser = Browser::start().await;
    browser.go(&server, "/").await;
    browser.until("document.getElementById('link').dataset.state === 'live'").await;
    browser.until("document.querySelector('#attention .good')").await;
    server.fail("default").await;
    let begun = std::time::Duration::from_secs(10);
    let red = browser.until("document.querySelector('#attention .notice.bad a')");
    assert!(tokio::time::timeout(begun, red).await.is_ok(), "it is not red after 10 s");
    browser.picture("overview-red").await;
    browser.has_no_errors("the overview").await;
    browser.end().await;
}
