//! The page of retention and the archive in a real headless Chromium.

use std::path::PathBuf;

use reqwest::Method;
use serde_json::{Value, json};

use crate::browser::{Browser, ENTER, SHIFT, TAB};
use crate::running::{HOSTILE, Running, store, until};
use crate::with_chromium_each_act::said;

const PAGE: &str = "Retention and archive";
/// What every event of these tests says in the view.
const ADA: &str = r#""user_id":"ada""#;

/// Commits an event of the user `ada`, waits until the view has it, and returns its id.
async fn commit(server: &Running) -> String {
    let commit = json!({"aggregate": {"name": "order", "id": "o-1"}, "events": [{"type": "order_placed", "data": {}}],
        "header": {"user_id": "ada"}});
    let committed = server.put("default", Method::POST, "/v1/commits", commit).await;
    let id = committed["events"][0]["id"].as_str().expect("an id").to_owned();
    until("the event is in the view", || async { said(server, &format!("/v1/events/{id}")).await.contains(ADA) }).await;
    id
}

/// The text of an element, once the page is complete.
async fn text_of(browser: &Browser, selector: &str) -> String {
    let element = format!("document.querySelector({})", json!(selector));
    browser.until(&format!("document.readyState === 'complete' && {element}")).await;
    let text = browser.evaluate(&format!("return {element}.textContent")).await;
    text.as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_is_counted_by_a_dry_run_then_set_and_removed_with_the_keyboard_only() {
    let server = Running::dev().await;
    commit(&server).await;
    let browser = Browser::start().await;
    browser.go(&server, "/").await;
    browser.follow(PAGE, PAGE).await;
    browser.follow("Set a rule", "Set a rule").await;
    browser.until("document.activeElement.name === 'reason'").await;
    browser.press("a test").await;
    // The reason has the focus. What comes before it is reached backwards.
    for typed in ["collection", "30", "order_placed"] {
        browser.press_with(SHIFT, TAB).await;
        browser.press(typed).await;
    }
    browser.press(ENTER).await;
    browser.until("document.querySelector('#dry-run')?.textContent.includes('due0')").await;
    assert!(said(&server, "/v1/retention").await.contains(r#""items":[]"#), "a dry run changes nothing");
    for (name, value) in [("name", "order_placed"), ("ttl_days", "30"), ("archive", "collection"), ("reason", "a test")]
    {
        let kept = browser.evaluate(&format!("return document.querySelector('[name={name}]').value")).await;
        assert_eq!(kept, value, "what was typed stays");
    }
    browser.picture("dry-run-rule").await;
    browser.tab_to("Dry run").await;
    browser.press(TAB).await;
    browser.press(ENTER).await;
    browser.until("document.querySelector('.notice.good')").await;
    let rules = said(&server, "/v1/retention").await;
    assert!(rules.contains(r#""ttl_days":30"#) && rules.contains(r#""reason":"a test""#), "{rules}");
    let shown = text_of(&browser, "#rules").await;
    assert!(shown.contains("order_placed") && shown.contains("30 days") && shown.contains("a test"), "{shown}");
    browser.follow("Remove rule", "Remove rule").await;
    browser.until("document.activeElement.name === 'reason'").await;
    browser.press("not needed").await;
    browser.press(ENTER).await;
    browser.until("document.querySelector('.notice.good')").await;
    assert!(said(&server, "/v1/retention").await.contains(r#""items":[]"#), "the rule is removed");
    browser.has_no_errors(PAGE).await;
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_on_filtered_events_keeps_them_until_it_is_lifted_and_an_archived_event_is_restored() {
    let server = Running::dev().await;
    let id = commit(&server).await;
    let browser = Browser::start().await;
    browser.go(&server, "/console/events?user_id=ada").await;
    browser.follow("Hold these events", "Set a hold").await;
    browser.until("document.activeElement.name === 'reason'").await;
    assert_eq!(browser.evaluate("return document.querySelector('[name=user_id]').value").await, "ada");
    browser.fill_in("name", "case-7").await;
    browser.because("a court asked for it").await;
    let shown = text_of(&browser, "#holds").await;
    assert!(shown.contains("case-7") && shown.contains("a court asked for it"), "{shown}");
    until("the hold is in force", || async { said(&server, "/v1/holds").await.contains(r#""in_force":true"#) }).await;
    browser.has_no_errors("a hold is set").await;
    let event = format!("/console/events?event={id}");
    browser.go(&server, &event).await;
    browser.choose("main a.act", "Archive now").await;
    browser.press("entered twice").await;
    browser.press(ENTER).await;
    // The refusal names the hold. Chromium logs its status as an error.
    browser.until("document.querySelector('main .notice.bad')?.textContent.includes('case-7')").await;
    assert!(said(&server, &format!("/v1/events/{id}")).await.contains(ADA), "a held event stays in the view");
    browser.go(&server, "/console/archive").await;
    browser.choose("#holds a.act", "Lift hold").await;
    browser.because("the case is closed").await;
    browser.go(&server, &event).await;
    browser.choose("main a.act", "Archive now").await;
    browser.because("entered twice").await;
    browser.go(&server, "/console/archive?user_id=ada").await;
    let archived = text_of(&browser, "#archived").await;
    assert!(archived.contains(&id) && archived.contains("entered twice"), "{archived}");
    browser.picture("archive-filtered").await;
    browser.choose("#archived a.act", "Restore").await;
    browser.because("it was not").await;
    assert!(said(&server, &format!("/v1/events/{id}")).await.contains(ADA), "the event is in the view again");
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reasons_of_a_rule_and_of_a_hold_are_shown_as_text() {
    let server = Running::dev().await;
    let browser = Browser::start().await;
    let rule = [("name", "order_placed"), ("ttl_days", "null"), ("archive", "none")];
    let hold = [("name", "case-7"), ("user_id", HOSTILE), ("service_name", HOSTILE)];
    for (act, fields) in [("rule", rule), ("hold", hold)] {
        browser.go(&server, &format!("/console/archive/act/{act}")).await;
        browser.until("document.activeElement.name === 'reason'").await;
        for (name, value) in fields {
            browser.fill_in(name, value).await;
        }
        browser.because(HOSTILE).await;
        browser.shows_only_text(act).await;
    }
    for table in ["#rules", "#holds"] {
        let shown = text_of(&browser, table).await;
        assert!(shown.contains(HOSTILE), "{table}: {shown}");
    }
    // The forms of the acts show the rule and the hold that they meet.
    for (links, act) in [("#rules a.act", "Remove rule"), ("#holds a.act", "Lift hold"), ("#holds a.act", "Set a hold")]
    {
        browser.go(&server, "/console/archive").await;
        browser.choose(links, act).await;
        browser.shows_only_text(act).await;
    }
    browser.has_no_errors("hostile reasons").await;
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_cannot_be_written_is_red_on_its_page_and_on_the_overview() {
    // A file where a folder belongs.
    let place = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let server = Running::dev_over(store(&["default"], &[]), Some(place)).await;
    commit(&server).await;
    let rule = json!({"ttl_days": 30, "archive": "files"});
    server.put("default", Method::PUT, "/v1/retention/order_placed", rule).await;
    until("the archive fails", || async {
        let (_, page) = server.api("", "default", Method::GET, "/v1/retention", Value::Null).await;
        page["archive"]["failing"]["reason"].is_string()
    })
    .await;
    let browser = Browser::start().await;
    let colour = "return getComputedStyle(document.querySelector('main .notice.bad')).color";
    let mut colours = Vec::new();
    for dark in [false, true] {
        browser.look(dark, 1280).await;
        browser.go(&server, "/console/archive").await;
        browser.until("document.querySelector('main .notice.bad')?.textContent.includes('cannot be written')").await;
        browser.until("document.querySelector('#state dd.bad')?.textContent === 'failing'").await;
        colours.push(browser.evaluate(colour).await);
        browser.picture(if dark { "archive-failing-dark" } else { "archive-failing" }).await;
    }
    assert_eq!(colours[0], "rgb(179, 38, 30)");
    assert_ne!(colours[0], colours[1], "the dark page has a red of its own");
    browser.go(&server, "/").await;
    browser.until("document.querySelector('#attention .notice.bad a[href=\"/console/archive\"]')").await;
    browser.has_no_errors("an archive that cannot be written").await;
    browser.end().await;
}
