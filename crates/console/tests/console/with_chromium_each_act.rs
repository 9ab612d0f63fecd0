//! Every act of every page, carried out once in a real headless Chromium. The list must be complete: a page that gets an act gets a line
//! here.

use annals_console::listing;
use reqwest::Method;
use serde_json::{Value, json};

use crate::browser::{Browser, ENTER};
use crate::driving::field;
use crate::running::{HOSTILE, Running, encoded};

/// An act, its parameters, what is typed before the reason, and what is true of the store afterwards: a path, and text of the answer.
struct Done {
    act: &'static str,
    parameters: String,
    typed: &'static [(&'static str, &'static str)],
    then: (String, String),
}

fn done(
    act: &'static str,
    parameters: &str,
    typed: &'static [(&'static str, &'static str)],
    then: (&str, &str),
) -> Done {
    Done { act, parameters: parameters.to_owned(), typed, then: (then.0.to_owned(), then.1.to_owned()) }
}

/// The acts on rules, holds and archived events.
fn acts_of_the_archive(server: &Running) -> Vec<Done> {
    let (archived, other) = (server.id("archive"), server.id("notes"));
    let hold = "/v1/holds/case-8";
    vec![
        done("archive/rule-remove", "name=note_taken", &[], ("/v1/retention", r#""items":[]"#)),
        done(
            "archive/hold",
            "user_id=ada",
            &[("name", "case-8"), ("event_types", "order_placed")],
            (hold, r#""in_force":true"#),
        ),
        done("archive/lift", "name=case-8", &[], (hold, "unknown_hold")),
        done(
            "archive/restore",
            &format!("event={archived}"),
            &[],
            (&format!("/v1/events/{archived}"), r#""event_type":"note_taken""#),
        ),
        done("events/archive", &format!("event={other}"), &[], ("/v1/events/archive", &other)),
    ]
}

/// In an order in which each is possible.
fn acts(server: &Running) -> Vec<Done> {
    let partition = encoded(&format!("order/o-{HOSTILE}"));
    let failing = format!("name=billing&partition={partition}&sequence_number=0&position=0");
    let (item, hostile) =
        (format!("name=renders&id={}", encoded(HOSTILE)), format!("/v1/queues/renders/items/{}", encoded(HOSTILE)));
    let (letter, saga) = (encoded(&server.id("dead-letters")), server.id("sagas"));
    let (replay, event) = (server.id("replays"), server.id("partners"));
    let of_replay = |act: &'static str, then: &str| {
        done(act, &format!("id={replay}"), &[], (&format!("/v1/replays/{replay}"), then))
    };
    let (handler, group) = ("/v1/handlers/billing", "/v1/groups/mailers");
    let name = "name=mailers";
    vec![
        done("handlers/retry", &failing, &[], (handler, "billing")),
        done("handlers/pause", &failing, &[], (handler, r#""state":"paused""#)),
        done("handlers/resume", &failing, &[], (handler, r#""state":"#)),
        done("handlers/move", &failing, &[("to", "latest")], (handler, r#""lag":0"#)),
        done("handlers/replay", &failing, &[("from", "0")], (handler, r#""replay":"#)),
        done("handlers/delete", &failing, &[], (handler, "unknown_handler")),
        done("groups/pause", name, &[], (group, r#""state":"paused""#)),
        done("groups/resume", name, &[], (group, "mailers")),
        done("groups/delete", name, &[], (group, "unknown_group")),
        done("projections/pause", "name=totals", &[], ("/v1/projections/totals", r#""state":"paused""#)),
        done("projections/resume", "name=totals", &[], ("/v1/projections/totals", "totals")),
        done("projections/rebuild", "name=totals", &[], ("/v1/projections/totals/acts", r#""act":"rebuild""#)),
        done("projections/delete", "name=totals", &[], ("/v1/projections/totals", "unknown_projection")),
        done("filters/delete", "name=orders", &[], ("/v1/filters/orders", "unknown_filter")),
        done("events/rebuild", "", &[], ("/v1/events/view", r#""state":"auto""#)),
        done(
            "events/settings",
            "",
            &[("state", "on"), ("retention_days", "30")],
            ("/v1/events/view", r#""retention_days":30"#),
        ),
        done(
            "preview/create",
            "filter.event_types=order_placed&target.kind=test",
            &[("speed", "2")],
            ("/v1/replays", r#""speed":2.0"#),
        ),
        of_replay("replays/start", r#""started_at""#),
        done("replays/remove", "hours=24", &[], ("/v1/replays", &replay)),
        done(
            "dead-letters/retry",
            &format!("id={letter}"),
            &[],
            (&format!("/v1/dead-letters/{letter}"), "retry_asked"),
        ),
        done(
            "dead-letters/discard",
            &format!("id={letter}"),
            &[],
            (&format!("/v1/dead-letters/{letter}"), r#""status":"discarded""#),
        ),
        done(
            "dead-letters/policy",
            "topic=order_placed",
            &[("strategy", "immediate"), ("max_retries", "2")],
            ("/v1/dead-letters/policies/order_placed", r#""strategy":"immediate""#),
        ),
        done(
            "dead-letters/policy-delete",
            "topic=order_placed",
            &[],
            ("/v1/dead-letters/policies/order_placed", r#""is_override":false"#),
        ),
        done("sagas/cancel", &format!("id={saga}"), &[], (&format!("/v1/sagas/{saga}"), r#""state":"cancelled""#)),
        done("saga-definitions/delete", "name=order", &[], ("/v1/saga-definitions/order", "unknown_saga_definition")),
        done("queues/priority", &item, &[("priority", "critical")], (&hostile, r#""priority":"critical""#)),
        done("queues/release", "name=renders&id=r-1", &[], ("/v1/queues/renders/items/r-1", r#""state":"pending""#)),
        done("queues/cancel", &item, &[], (&hostile, "unknown_item")),
        done("queues/delete", "name=renders", &[], ("/v1/queues/renders", "unknown_queue")),
        done("partners/pause", "name=acme", &[], ("/v1/partners/acme", r#""state":"paused""#)),
        done("partners/resume", "name=acme", &[], ("/v1/partners/acme", r#""paused":false"#)),
        done("partners/replay", "name=acme", &[("from", "0"), ("to", "1")], ("/v1/partners/acme", "acme")),
        done(
            "partners/resend",
            &format!("name=acme&event={event}"),
            &[],
            (&format!("/v1/partner-events/{event}"), &event),
        ),
        done(
            "partners/cancel",
            &format!("name=acme&event={event}"),
            &[],
            (&format!("/v1/partner-events/{event}"), r#""ended":"cancelled""#),
        ),
        done("partners/delete", "name=acme", &[], ("/v1/partners/acme", "unknown_partner")),
        done("horizon/revoke", "consent=c-1", &[], ("/v1/consents", r#""items":[]"#)),
        done(
            "credentials/create",
            "",
            &[("name", "web"), ("roles", "reader"), ("tenants", "default")],
            ("/v1/credentials", r#""name":"web""#),
        ),
    ]
}

/// What other tests carry out.
const ELSEWHERE: [&str; 15] = [
    "archive/rule",
    "credentials/revoke",
    "handlers/skip",
    "handlers/park",
    "groups/retry",
    "groups/skip",
    "groups/park",
    "replays/pause",
    "replays/resume",
    "replays/cancel",
    "dead-letters/retry-many",
    "dead-letters/discard-many",
    "sagas/retry",
    "horizon/unsubscribe",
    "topics/apply",
];

impl Browser {
    /// Carries an act out as a person without a mouse does: the reason has the focus, and Enter sends the form.
    async fn carry_out(&self, server: &Running, it: &Done) {
        let (page, act) = it.act.split_once('/').expect("a page and an act");
        self.go(server, &format!("/console/{page}/act/{act}?{}", it.parameters)).await;
        self.until("document.activeElement.name === 'reason'").await;
        let effect = self.evaluate("return document.querySelector('.will').textContent").await;
        let said = effect.as_str().unwrap_or_default();
        assert!(said.len() > 20 && !said.contains('{'), "{} does not say what it will do: {said:?}", it.act);
        for (name, value) in it.typed {
            self.move_to(&field(name)).await;
            self.press(value).await;
        }
        self.move_to(&field("reason")).await;
        self.press(&format!("why {act}")).await;
        self.picture(&format!("act-{page}-{act}")).await;
        self.press(ENTER).await;
    }
}

/// The answer of the API to an administrator, as text.
pub async fn said(server: &Running, path: &str) -> String {
    server.api(&server.admin, "default", Method::GET, path, Value::Null).await.1.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_act_of_every_page_does_what_it_says_and_is_recorded() {
    let server = Running::secured(&["default"]).await;
    server.fill_all("default").await;
    server.fail("default").await;
    let browser = Browser::start().await;
    browser.go(&server, "/").await;
    browser.until("document.activeElement.name === 'credential'").await;
    browser.press(&server.admin).await;
    browser.press(ENTER).await;
    browser.until("document.querySelector('h1')?.textContent === 'Overview'").await;
    let mut acts = acts(&server);
    acts.extend(acts_of_the_archive(&server));
    for it in &acts {
        browser.carry_out(&server, it).await;
        browser.until("document.querySelector('.notice.good, #key') || location.pathname === '/console/replays'").await;
        browser.has_no_errors(it.act).await;
        let (path, text) = &it.then;
        crate::running::until(it.act, || async { said(&server, path).await.contains(text) }).await;
    }
    let audit = said(&server, "/v1/audit?limit=1000").await;
    for it in &acts {
        let (_, act) = it.act.split_once('/').expect("a page and an act");
        assert!(audit.contains(&format!("why {act}")), "{} is not recorded: {audit}", it.act);
    }
    let tested: Vec<&str> = acts.iter().map(|it| it.act).chain(ELSEWHERE).collect();
    for act in listing().into_iter().flat_map(|page| page.acts) {
        let name = act.path.trim_start_matches("/console/").replace("/act/", "/");
        assert!(tested.contains(&&*name), "{name} is carried out by no test");
    }
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_letters_are_counted_by_a_dry_run_before_they_are_retried_or_discarded() {
    let server = Running::dev().await;
    server.fill_all("default").await;
    let browser = Browser::start().await;
    for (act, status) in [("Retry many", "scheduled"), ("Discard many", "discarded")] {
        browser.go(&server, "/console/dead-letters?topic=order_placed").await;
        browser
            .evaluate(&format!(
                "[...document.querySelectorAll('a.act')].find(link => link.textContent === {}).click()",
                json!(act)
            ))
            .await;
        browser.until("document.activeElement.name === 'reason'").await;
        let condition = browser.evaluate("return document.querySelector('[name=condition]').value").await;
        assert_eq!(condition, r#"{"field":"original_topic","operator":"EQ","value":"order_placed"}"#);
        let before = said(&server, "/v1/dead-letters").await;
        browser.press(&format!("why {act}")).await;
        // Enter looks first: nothing that many letters depend on happens by one key.
        browser.press(ENTER).await;
        browser.until("document.querySelector('#dry-run')?.textContent.includes('total1')").await;
        let kept = browser.evaluate("return document.querySelector('[name=reason]').value").await;
        assert_eq!(kept, format!("why {act}").as_str(), "what was typed stays");
        assert_eq!(said(&server, "/v1/dead-letters").await, before, "a dry run changes nothing");
        browser.picture(&format!("dry-run-{}", status)).await;
        browser.evaluate("document.querySelector('button.danger').click()").await;
        browser.until("document.querySelector('.notice.good')").await;
        assert!(said(&server, "/v1/dead-letters").await.contains(&format!(r#""status":"{status}""#)), "{act}");
        browser.has_no_errors(act).await;
    }
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_is_looked_at_created_and_watched_until_it_is_paused_and_cancelled() {
    let server = Running::dev().await;
    server.fill_all("default").await;
    let browser = Browser::start().await;
    browser.go(&server, "/console/preview").await;
    browser.evaluate("document.querySelector('[name=\"filter.event_types\"]').value = 'order_placed'").await;
    browser.evaluate("document.querySelector('[name=\"target.kind\"]').value = 'handler'").await;
    browser.evaluate("document.querySelector('[name=\"target.name\"]').value = 'billing'").await;
    browser.evaluate("document.querySelector('#search button').click()").await;
    browser.until("document.querySelector('#count')?.textContent === '3 events would be sent'").await;
    assert_eq!(browser.evaluate("return document.querySelectorAll('#first tbody tr').length").await, 3);
    browser.evaluate("document.querySelector('#act-1').click()").await;
    browser.until("document.activeElement.name === 'reason'").await;
    browser.press("a lost mail").await;
    browser.press(ENTER).await;
    browser.until("document.querySelector('h1')?.textContent.startsWith('Replay ')").await;
    for (act, then) in [("Start", "running"), ("Pause", "paused"), ("Resume", "running"), ("Cancel", "cancelled")] {
        browser
            .evaluate(&format!(
                "[...document.querySelectorAll('a.act')].find(link => link.textContent === {}).click()",
                json!(act)
            ))
            .await;
        browser.until("document.activeElement.name === 'reason'").await;
        browser.press(&format!("why {act}")).await;
        browser.press(ENTER).await;
        // The page is live: it shows the state when it comes.
        browser.until(&format!("document.querySelector('.facts')?.textContent.includes('{then}')")).await;
        browser.until("document.querySelector('#progress')").await;
        browser.has_no_errors(act).await;
    }
    browser.picture("replay-cancelled").await;
    browser.end().await;
}
