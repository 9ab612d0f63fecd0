//! Acts in a real headless Chromium, with the keyboard only, and what the pages of other origins cannot do.

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use reqwest::Method;
use serde_json::{Value, json};

use crate::browser::{Browser, ENTER, SHIFT, TAB};
use crate::running::Running;

/// Most keys that lead to anything on a page.
const KEYS_MAX: usize = 200;

impl Browser {
    /// Presses Tab until what has the focus says this.
    pub async fn tab_to(&self, words: &str) {
        for _ in 0..KEYS_MAX {
            if self.evaluate("return document.activeElement.textContent.trim()").await == words {
                return;
            }
            self.press(TAB).await;
        }
        panic!("no key leads to {words:?}: {}", self.source().await);
    }

    /// Follows a link with the keyboard, to a page with this heading.
    pub async fn follow(&self, link: &str, heading: &str) {
        self.tab_to(link).await;
        self.press(ENTER).await;
        self.until(&format!("document.querySelector('h1')?.textContent === {}", json!(heading))).await;
    }
}

async fn handler(server: &Running) -> Value {
    server.api(&server.admin, "default", Method::GET, "/v1/handlers/billing", json!(null)).await.1
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_signs_in_and_mends_a_handler_with_the_keyboard_only() {
    let server = Running::secured(&["default"]).await;
    server.fill("default").await;
    server.fail("default").await;
    let browser = Browser::start().await;
    browser.go(&server, "/").await;
    browser.until("document.querySelector('h1')?.textContent === 'Sign in'").await;
    browser.press(&server.admin).await;
    browser.press(ENTER).await;
    browser.until("document.querySelector('h1')?.textContent === 'Overview'").await;
    browser.follow("Handlers", "Handlers").await;
    browser.follow("billing", "Handler billing").await;
    for act in ["Pause", "Resume", "Retry", "Skip", "Replay", "Move", "Park", "Delete"] {
        if act == "Skip" || act == "Park" {
            // A retry hands the event out again, and so does a replay.
            if act == "Park" {
                let event = json!({"type": "order_placed", "data": {}});
                let commit = json!({"aggregate": {"name": "order", "id": "last"}, "events": [event]});
                server.put("default", Method::POST, "/v1/commits", commit).await;
            }
            server.fail("default").await;
            browser.go(&server, "/console/handlers?name=billing").await;
            browser.until("document.querySelector('#failing')").await;
        }
        browser.follow(act, act).await;
        browser.has_no_errors(act).await;
        let about = browser.evaluate("return document.querySelector('.will').textContent").await;
        assert!(about.as_str().is_some_and(|about| about.len() > 40), "{act}: {about}");
        // The reason has the focus. What comes before it is reached backwards.
        let before = match act {
            "Replay" => Some("beginning"),
            "Move" => Some("latest"),
            _ => None,
        };
        browser.press(&format!("why {act}")).await;
        if let Some(before) = before {
            browser.press_with(SHIFT, TAB).await;
            browser.press(before).await;
        }
        browser.picture(&format!("act-{}", act.to_lowercase())).await;
        browser.press(ENTER).await;
        browser.until("document.querySelector('.notice.good')?.textContent.startsWith('Done.')").await;
        browser.has_no_errors(act).await;
    }
    let after = handler(&server).await;
    assert_eq!(after["code"], "unknown_handler", "{after}");
    browser.follow("Audit", "Audit").await;
    let audit = browser.evaluate("return document.querySelector('#audit').textContent").await.to_string();
    for act in ["Pause", "Resume", "Retry", "Skip", "Replay", "Move", "Park", "Delete"] {
        assert!(audit.contains(&format!("why {act}")), "{act}: {audit}");
    }
    browser.follow("Sign out", "Sign in").await;
    browser.go(&server, "/console/audit").await;
    browser.until("document.querySelector('h1')?.textContent === 'Sign in'").await;
    browser.has_no_errors("signing out").await;
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_field_is_reached_by_the_keyboard_and_the_content_by_the_first_link() {
    let server = Running::dev().await;
    server.fill("default").await;
    let browser = Browser::start().await;
    browser.go(&server, "/console/log").await;
    browser.press(TAB).await;
    assert_eq!(browser.evaluate("return document.activeElement.className").await, "skip");
    browser.press(ENTER).await;
    browser.until("document.activeElement.id === 'main'").await;
    browser.press("/").await;
    browser.until("document.activeElement.name === 'search'").await;
    browser.press("order_placed").await;
    browser.press(ENTER).await;
    browser.until("location.search.includes('search=order_placed')").await;
    browser.until("document.querySelectorAll('#events tbody tr').length === 3").await;
    browser.has_no_errors("the log").await;
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_origin_can_do_nothing_with_the_session_of_a_person() {
    let server = Running::secured(&["default"]).await;
    server.fill("default").await;
    let browser = Browser::start().await;
    browser.go(&server, "/console/sign-in").await;
    browser.press(&server.admin).await;
    browser.press(ENTER).await;
    browser.until("document.querySelector('h1')?.textContent === 'Overview'").await;
    browser.go(&server, "/console/handlers/act/pause?name=billing").await;
    // Even a token that was found out is of no use from elsewhere. Cookies do not tell ports apart, so the session's is sent.
    let token = browser.evaluate("return document.querySelector('form.act-form [name=token]').value").await;
    let action = server.url("/console/handlers/act/pause");
    let evil = format!(
        "<!doctype html><title>evil</title><form method=post action=\"{action}\"><input name=token value={token}><input name=name \
         value=billing><input name=reason value=evil></form><script>setTimeout(() => document.forms[0].submit())</script>"
    );
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let router = Router::new().route("/", get(move || async move { Html(evil) }));
    tokio::spawn(async move { axum::serve(listener, router).await });
    browser.go_to(&format!("http://{address}/")).await;
    browser.until("document.body.textContent.includes('forbidden_origin') || document.body.textContent.includes('not sent by')").await;
    assert_ne!(handler(&server).await["state"], "paused");
    // From the server's own page the same form acts.
    browser.go(&server, "/console/handlers/act/pause?name=billing").await;
    browser.until("document.activeElement.name === 'reason'").await;
    browser.press("mine").await;
    browser.press(ENTER).await;
    browser.until("document.querySelector('.notice.good')").await;
    assert_eq!(handler(&server).await["state"], "paused");
    browser.end().await;
}
