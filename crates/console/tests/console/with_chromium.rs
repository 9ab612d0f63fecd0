//! Every page in a real headless Chromium. Pictures of them are in `target/console`.

use annals_console::listing;
use serde_json::json;

use crate::browser::Browser;
use crate::running::Running;

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_shown_without_errors_in_the_dark_and_on_a_phone_and_runs_nothing_that_is_stored() {
    let server = Running::dev().await;
    server.fill_all("default").await;
    server.fail("default").await;
    let browser = Browser::start().await;
    for page in listing() {
        let name = page.path.strip_prefix("/console/").unwrap_or("overview");
        let detail =
            server.detail(&page.path).map(|detail| (format!("{}?{detail}", page.path), format!("{name}-detail")));
        for (address, name) in [Some((page.path.clone(), name.to_owned())), detail].into_iter().flatten() {
            browser.look(false, 1280).await;
            browser.go(&server, &address).await;
            if page.live {
                browser.until("document.getElementById('link').dataset.state === 'live'").await;
            }
            assert_eq!(browser.title().await, format!("{} · Annals", page.title), "{address}");
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
        let address = format!("{}?{}", act.path, server.parameters(&act.path));
        browser.go(&server, &address).await;
        assert_ne!(browser.title().await, "hacked", "{address}");
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
