//! Every page, as the registry lists them.

use annals_console::listing;
use annals_core::credentials::{Grant, Role};

use crate::running::{HOSTILE, Running, encoded, key_in, until};

/// The addresses of every page, its detail and its acts.
pub fn addresses(server: &Running) -> Vec<String> {
    let mut addresses = Vec::new();
    for page in listing() {
        addresses.extend(server.detail(&page.path).map(|detail| format!("{}?{detail}", page.path)));
        addresses.extend(page.acts.iter().map(|act| format!("{}?{}", act.path, server.parameters(&act.path))));
        addresses.push(page.path);
    }
    addresses
}

fn with(address: &str, parameter: &str) -> String {
    format!("{address}{}{parameter}", if address.contains('?') { '&' } else { '?' })
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_shown_in_the_frame_with_a_policy_that_allows_nothing_inline() {
    let server = Running::dev().await;
    server.fill_all("default").await;
    server.fail("default").await;
    for page in listing() {
        for address in
            [Some(page.path.clone()), server.detail(&page.path).map(|detail| format!("{}?{detail}", page.path))]
        {
            let Some(address) = address else { continue };
            let answer = server.get("", &address).await;
            let policy = answer.headers()["content-security-policy"].to_str().expect("text").to_owned();
            assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"), "{policy}");
            assert!(!policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"), "{policy}");
            assert_eq!(answer.headers()["cache-control"], "no-store");
            let (status, text) = (answer.status(), answer.text().await.expect("text"));
            assert_eq!(status, 200, "{address}: {text}");
            assert!(text.contains("--dev: no credentials are required"), "{address}");
            assert!(text.contains(&format!("aria-current=\"page\">{}", page.title)), "{address}");
            assert!(!text.contains(" style=") && !text.contains("<style") && !text.contains(" onclick"), "{address}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_is_never_markup() {
    let server = Running::dev().await;
    server.fill_all("default").await;
    server.fail("default").await;
    let mut seen = 0;
    for address in addresses(&server) {
        // What the address itself carries is shown as well.
        let (_, text) =
            server.page("", &with(&address, &format!("reason={0}&scope={0}&done={0}", encoded(HOSTILE)))).await;
        let (_, plain) = server.page("", &address).await;
        for text in [&text, &plain] {
            assert!(!text.contains("<script>document") && !text.contains("<img"), "{address}: {text}");
        }
        seen += usize::from(plain.contains("&#60;script&#62;document"));
    }
    assert!(seen >= 40, "what is hostile is on {seen} pages only");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_page_and_no_act_shows_anything_of_another_tenant() {
    let server = Running::secured(&["default", "other"]).await;
    for tenant in ["default", "other"] {
        server.fill_all(tenant).await;
        server.fail(tenant).await;
    }
    let key = key_in(&*server.store, Grant::new(Role::Operator, ["default"])).await;
    let cookie = server.sign_in(&key).await;
    for address in addresses(&server) {
        let (own, _) = server.page(&cookie, &address).await;
        let (status, text) = server.page(&cookie, &with(&address, "tenant=other")).await;
        assert!(!text.contains("of other"), "{address}: {text}");
        assert!(!text.contains("name=\"reason\""), "{address} asks for a reason: {text}");
        // What needs an administrator is refused before it is known whose it is.
        let refused = if own == 403 { 403 } else { 404 };
        assert_eq!(status, refused, "{address}: {text}");
        let (unknown, _) = server.page(&cookie, &with(&address, "tenant=nobody")).await;
        assert_eq!(unknown, refused, "{address}: another tenant and none are not told apart");
    }
    let (_, text) = server.page(&cookie, "/console/log").await;
    assert!(text.contains("of default"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_is_shown_no_acts_and_no_pages_of_administrators() {
    let server = Running::secured(&["default"]).await;
    server.fill_all("default").await;
    server.fail("default").await;
    let key = key_in(&*server.store, Grant::new(Role::Reader, ["default"])).await;
    let cookie = server.sign_in(&key).await;
    let (_, handler) = server.page(&cookie, "/console/handlers?name=billing").await;
    assert!(handler.contains("Failing partitions") && !handler.contains("/act/"), "{handler}");
    for page in listing() {
        let (status, text) = server.page(&cookie, &page.path).await;
        assert_eq!(status, if page.permission == "admin" { 403 } else { 200 }, "{}: {text}", page.path);
        for act in page.acts {
            let (status, text) = server.page(&cookie, &format!("{}?{}", act.path, server.parameters(&act.path))).await;
            assert_eq!(status, 403, "{}: {text}", act.path);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aggregate_is_shown_as_it_was_at_each_version() {
    let server = Running::dev().await;
    server.fill("default").await;
    let address = |version: u64| {
        format!("/console/aggregates?name=order&id={}&version={version}", encoded(&format!("o-{HOSTILE}")))
    };
    let (_, first) = server.page("", &address(1)).await;
    assert!(first.contains("At version 1") && first.contains("&#34;total&#34;: 0"), "{first}");
    assert!(
        !first.contains("Snapshot at version") && first.contains("Next version") && !first.contains("Previous version")
    );
    let (_, last) = server.page("", &address(3)).await;
    assert!(last.contains("&#34;total&#34;: 2") && last.contains("Snapshot at version 2"), "{last}");
    assert!(last.contains("1 commits follow the snapshot") && !last.contains("Next version"), "{last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_filtered_searched_and_paged() {
    let server = Running::dev().await;
    for n in 0..60 {
        let event =
            serde_json::json!({"type": if n % 2 == 0 { "even" } else { "odd" }, "data": {"needle": format!("<{n}>")}});
        let commit = serde_json::json!({"aggregate": {"name": "n", "id": n.to_string()}, "events": [event]});
        server.put("default", reqwest::Method::POST, "/v1/commits", commit).await;
    }
    let rows = |text: &str| text.matches("id=\"events-").count() / 2;
    let (_, newest) = server.page("", "/console/log").await;
    assert_eq!(rows(&newest), 50);
    assert!(newest.contains("Older events") && newest.contains("number=59") && !newest.contains("number=9\""));
    let (_, older) = server.page("", "/console/log?from=10").await;
    assert!(rows(&older) == 10 && !older.contains("Older events"), "{older}");
    let (_, odd) = server.page("", "/console/log?types=odd").await;
    assert_eq!(rows(&odd), 30);
    let (_, found) = server.page("", "/console/log?search=%3C17%3E").await;
    assert!(rows(&found) == 1 && found.contains("number=17"), "{found}");
    let (status, refused) = server.page("", "/console/log?from=nonsense").await;
    assert!(status == 422 && refused.contains("invalid_query"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_found_by_condition() {
    let server = Running::dev().await;
    server.fill("default").await;
    let condition = encoded(&serde_json::json!({"field": "name", "operator": "EQ", "value": HOSTILE}).to_string());
    let (_, found) = server.page("", &format!("/console/records?collection=customers&condition={condition}")).await;
    assert!(found.contains("records-1-1"), "{found}");
    let none = encoded(r#"{"field":"name","operator":"EQ","value":"x"}"#);
    let (_, none) = server.page("", &format!("/console/records?collection=customers&condition={none}")).await;
    assert!(none.contains("No record matches."), "{none}");
    let (_, wrong) = server.page("", "/console/records?collection=customers&condition=%7B").await;
    assert!(wrong.contains("This is not JSON."), "{wrong}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_page_sends_its_content_again_when_it_changes() {
    let server = Running::dev().await;
    server.fill("default").await;
    let mut stream = server.get("", "/console/handlers/live?name=billing").await;
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let read = async {
        let mut failed = false;
        let mut text = String::new();
        while !(failed && text.contains("&#60;script&#62;")) {
            let chunk = stream.chunk().await.expect("a chunk").expect("it does not end");
            text.push_str(std::str::from_utf8(&chunk).expect("UTF-8"));
            if !failed && text.contains("No partition is failing.") {
                server.fail("default").await;
                failed = true;
                text.clear();
            }
        }
    };
    assert!(tokio::time::timeout(crate::running::DEADLINE, read).await.is_ok(), "the failure was not shown");
    assert_eq!(server.get("", "/console/log/live").await.status(), 404, "not every page is live");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_filtered_counted_and_downloaded_with_the_session_of_the_page() {
    let server = Running::secured(&["default", "other"]).await;
    server.fill("default").await;
    server.fill("other").await;
    let key = key_in(&*server.store, Grant::new(Role::Reader, ["default"])).await;
    let cookie = server.sign_in(&key).await;
    let (_, page) = server.page(&cookie, "/console/events?event_types=order_placed").await;
    assert!(page.contains("<span id=\"total\">3 events</span>"), "{page}");
    let (_, none) = server.page(&cookie, "/console/events?user_id=nobody").await;
    assert!(none.contains("No event matches.") && none.contains("0 events"), "{none}");
    let (_, counted) = server.page(&cookie, "/console/events?hours=24").await;
    assert!(counted.contains("By type") && counted.contains("errors, %"), "{counted}");
    // The link of the page leads to what the filter selects.
    let link = page.split("<a href=\"").find(|rest| rest.starts_with("/console/events/file/export")).expect("a link");
    let link = link.split('"').next().expect("it ends").replace("&#38;", "&").replace("&amp;", "&");
    let answer = server.get(&cookie, &link).await;
    assert!(answer.headers()["content-type"].to_str().expect("text").starts_with("text/csv"), "{answer:?}");
    assert!(answer.headers()["content-disposition"].to_str().expect("text").starts_with("attachment"), "{answer:?}");
    assert!(answer.headers()["content-security-policy"].to_str().expect("text").starts_with("default-src 'none'"));
    let rows = answer.text().await.expect("text");
    assert_eq!(rows.matches("order_placed").count(), 3, "{rows}");
    let (status, text) = server.page(&cookie, &with(&link, "tenant=other")).await;
    assert!(status == 404 && !text.contains("of other"), "{text}");
    assert_eq!(server.get("", &link).await.status(), 303, "without a session there is nothing");
    assert_eq!(server.get(&cookie, "/console/events/file/nothing").await.status(), 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_holds_and_archived_events_are_listed_and_a_reader_is_offered_no_act_on_them() {
    let server = Running::secured(&["default"]).await;
    server.fill_archive("default").await;
    let key = key_in(&*server.store, Grant::new(Role::Reader, ["default"])).await;
    let (operator, reader) = (server.sign_in(&server.admin).await, server.sign_in(&key).await);
    until("the archive is ready", || async {
        server.page(&operator, "/console/archive").await.1.contains("<dd class=\"good\">ready</dd>")
    })
    .await;
    let (_, page) = server.page(&operator, "/console/archive").await;
    for text in [
        "note_taken",
        "30 days",
        "1 archived events",
        "kept 90 days",
        "The archive has no files.",
        "/act/lift?",
        "/act/restore?",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let (_, none) = server.page(&operator, "/console/archive?event_types=other").await;
    assert!(none.contains("No archived event matches."), "{none}");
    let (status, unknown) = server.page(&operator, "/console/archive?event=nothing").await;
    assert!(status == 404 && unknown.contains("This archived event does not exist."), "{unknown}");
    let (_, page) = server.page(&reader, "/console/archive").await;
    assert!(page.contains("1 archived events") && !page.contains("/act/"), "{page}");
    let (_, events) = server.page(&reader, "/console/events?event_types=note_taken").await;
    assert!(events.contains("note_taken") && !events.contains("Hold these events"), "{events}");
    let (_, events) = server.page(&operator, "/console/events?event_types=note_taken").await;
    assert!(events.contains("Hold these events"), "{events}");
    let (_, searched) = server.page(&operator, "/console/events?event_types=note_taken&search=note").await;
    assert!(!searched.contains("Hold these events"), "a hold has no words: {searched}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_of_a_partner_is_filtered_by_day() {
    let server = Running::dev().await;
    server.fill_all("default").await;
    let (id, day) = (server.id("partners"), server.first("default", "/v1/partners/acme/events", "event_day_id").await);
    let day = day.as_i64().expect("a number of days");
    let (_, shown) = server.page("", &format!("/console/partners?name=acme&day={day}")).await;
    assert!(shown.contains(&id) && shown.contains("name=\"day\""), "{shown}");
    let (_, none) = server.page("", &format!("/console/partners?name=acme&day={}", day + 2)).await;
    assert!(!none.contains(&id) && none.contains("No event matches."), "{none}");
}
