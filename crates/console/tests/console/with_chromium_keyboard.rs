//! Every link, field and button of every page is reached with Tab alone, in a real headless Chromium.

use annals_console::listing;
use serde_json::json;

use crate::browser::{Browser, TAB};
use crate::running::Running;

/// Names an element in a way that a live page keeps when it is replaced.
const NAMED: &str = "const named = it => it.tagName + ' ' +
    (it.id || it.getAttribute('href') || it.getAttribute('name') || it.closest('[id]')?.id || '');";
/// Notes what can be reached and what gets the focus from now on, and begins at the first link.
const BEGIN: &str = "
    window.reached = new Set();
    document.addEventListener('focusin', event => window.reached.add(named(event.target)));
    const all = 'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex=\"0\"]';
    window.expected = [...document.querySelectorAll(all)].filter(it => it.checkVisibility({visibilityProperty: true}) && !it.disabled).map(named);
    document.querySelector('a.skip').focus();
    return window.expected.length;";
/// Areas that scroll have the focus too, beside what is expected.
const AREAS_MAX: usize = 60;

#[tokio::test(flavor = "multi_thread")]
async fn every_link_field_and_button_of_every_page_is_reached_with_tab() {
    let server = Running::secured(&["default"]).await;
    server.fill_all("default").await;
    server.fail("default").await;
    let browser = Browser::start().await;
    browser.sign_in(&server).await;
    for page in listing() {
        let detail = server.detail(&page.path).map(|detail| format!("{}?{detail}", page.path));
        let address = detail.unwrap_or(page.path);
        browser.go(&server, &address).await;
        let expected = browser.evaluate(&format!("{NAMED}{BEGIN}")).await.as_u64().expect("a number");
        // The menu alone has a link for each page.
        assert!(expected >= listing().len() as u64, "{address}: {expected}");
        browser.press(&TAB.repeat(expected as usize + AREAS_MAX)).await;
        let missed = browser.evaluate("return window.expected.filter(it => !window.reached.has(it))").await;
        assert_eq!(missed, json!([]), "{address}: no key leads there");
        browser.has_no_errors(&address).await;
    }
    browser.end().await;
}
