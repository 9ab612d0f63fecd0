//! Acts: what they need before they are carried out, and that they are recorded.

use annals_console::listing;
use reqwest::Method;
use serde_json::json;

use crate::running::{HOSTILE, Running, encoded, parameters, token};

fn fields<'a>(token: &'a str, reason: &'a str, partition: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("token", token),
        ("reason", reason),
        ("name", "billing"),
        ("partition", partition),
        ("position", "0"),
        ("sequence_number", "0"),
        ("to", "latest"),
        ("from", "beginning"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_act_needs_the_token_a_reason_and_a_page_of_this_server() {
    let server = Running::secured(&["default"]).await;
    server.fill("default").await;
    server.fail("default").await;
    let session = server.sign_in(&server.admin).await;
    let (_, page) = server.page(&session, "/").await;
    let good = token(&page);
    let other = server.sign_in(&server.admin).await;
    let (_, page) = server.page(&other, "/").await;
    let of_another_session = token(&page);
    let partition = format!("order/o-{HOSTILE}");
    for act in listing().into_iter().flat_map(|page| page.acts) {
        for (token, reason, refused) in [
            ("", "why", 403),
            ("0000", "why", 403),
            (&*of_another_session, "why", 403),
            (&*good, "", 422),
            (&*good, "  ", 422),
        ] {
            let answer = server.form(&session, &act.path, &fields(token, reason, &partition)).await;
            assert_eq!(answer.status(), refused, "{} {token:?} {reason:?}", act.path);
        }
        for (header, value) in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            let body = format!("token={good}&reason=why&{}", parameters());
            let request = server.client.post(server.url(&act.path)).header("cookie", &session).header(header, value);
            let request = request.header("content-type", "application/x-www-form-urlencoded").body(body);
            assert_eq!(request.send().await.expect("an answer").status(), 403, "{} {value}", act.path);
        }
        // Without the cookie there is nobody to act.
        let answer = server.form("", &act.path, &fields(&good, "why", &partition)).await;
        assert_eq!(answer.status(), 303, "{}", act.path);
        assert!(answer.headers()["location"].to_str().expect("text").starts_with("/console/sign-in"), "{}", act.path);
    }
    let (_, partitions) =
        server.api(&server.admin, "default", Method::GET, "/v1/handlers/billing/partitions", json!(null)).await;
    assert_eq!(partitions["items"].as_array().expect("a list").len(), 1, "nothing was done: {partitions}");
    let (_, audit) = server.api(&server.admin, "default", Method::GET, "/v1/audit?limit=1000", json!(null)).await;
    let done: Vec<_> = audit["items"].as_array().expect("a list").iter().filter(|act| act["why"] == "why").collect();
    assert!(done.is_empty(), "{done:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_acts_on_a_handler_do_what_they_say_and_are_recorded_with_their_reason() {
    let server = Running::secured(&["default"]).await;
    server.fill("default").await;
    server.fail("default").await;
    let session = server.sign_in(&server.admin).await;
    let partition = format!("order/o-{HOSTILE}");
    let handler =
        async || server.api(&server.admin, "default", Method::GET, "/v1/handlers/billing", json!(null)).await.1;
    assert_eq!(handler().await["failing"], 1);
    for act in ["pause", "resume", "retry", "skip", "replay", "move", "delete"] {
        if act == "skip" {
            // It was handed out again, and fails again.
            server.fail("default").await;
        }
        let path = format!("/console/handlers/act/{act}");
        let (status, page) = server
            .page(
                &session,
                &format!("{path}?name=billing&partition={}&sequence_number=0&position=0", encoded(&partition)),
            )
            .await;
        assert!(status == 200 && page.contains("<h2>Effect</h2>") && page.contains("billing"), "{act}: {page}");
        let answer = server.form(&session, &path, &fields(&token(&page), &format!("why {act}"), &partition)).await;
        let status = answer.status();
        let location = answer.headers().get("location").map(|to| to.to_str().expect("text").to_owned());
        assert_eq!(status, 303, "{act}: {}", answer.text().await.expect("text"));
        let (_, back) = server.page(&session, &location.expect("it leads back")).await;
        assert!(back.contains("<strong>Done.</strong>"), "{act}: {back}");
        let after = handler().await;
        match act {
            "pause" => assert_eq!(after["state"], "paused", "{after}"),
            "resume" => assert_ne!(after["state"], "paused", "{after}"),
            "skip" => assert_eq!(after["blocked"], 0, "{after}"),
            "delete" => assert_eq!(after["code"], "unknown_handler", "{after}"),
            _ => {}
        }
    }
    let (_, audit) = server.page(&session, "/console/audit").await;
    for act in ["pause", "resume", "retry", "skip", "replay", "move", "delete"] {
        assert!(audit.contains(&format!("why {act}")), "{act} is not recorded: {audit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_shown_once_when_it_is_created() {
    let server = Running::secured(&["default"]).await;
    let session = server.sign_in(&server.admin).await;
    let (_, page) = server.page(&session, "/console/credentials/act/create").await;
    let fields = [
        ("token", &*token(&page)),
        ("reason", "for the web"),
        ("name", HOSTILE),
        ("roles", "reader, writer"),
        ("tenants", "default"),
    ];
    let answer = server.form(&session, "/console/credentials/act/create", &fields).await;
    assert_eq!(answer.status(), 200);
    let text = answer.text().await.expect("text");
    let key = text
        .split("id=\"key\" tabindex=\"0\">")
        .nth(1)
        .and_then(|rest| rest.split('<').next())
        .expect("a key")
        .to_owned();
    assert_eq!(server.api(&key, "default", Method::GET, "/v1", json!(null)).await.0, 200);
    let (_, list) = server.page(&session, "/console/credentials").await;
    assert!(list.contains("&#60;script&#62;") && !list.contains(&key), "{list}");
    // A refusal is shown where it was asked, with what was typed.
    let fields =
        [("token", &*token(&page)), ("reason", "again"), ("name", "x"), ("roles", "king"), ("tenants", "default")];
    let refused = server.form(&session, "/console/credentials/act/create", &fields).await;
    assert_eq!(refused.status(), 422);
    let text = refused.text().await.expect("text");
    assert!(text.contains("value=\"king\"") && text.contains("value=\"again\""), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_and_a_hold_have_the_name_that_is_typed_and_a_dry_run_sets_nothing() {
    let server = Running::dev().await;
    let (_, page) = server.page("", "/console/archive/act/rule").await;
    let token = token(&page);
    let get = async |path: &str| server.api("", "default", Method::GET, path, json!(null)).await.1;
    let rule = [("name", "order_placed"), ("ttl_days", "30"), ("archive", "collection")];
    let given = [("token", &*token), ("reason", "why")];
    let looks = [&given[..], &rule, &[("dry_run", "true")]].concat();
    let looked = server.form("", "/console/archive/act/rule", &looks).await.text().await.expect("text");
    assert!(looked.contains("Dry run: nothing was changed") && looked.contains("value=\"order_placed\""), "{looked}");
    assert_eq!(get("/v1/retention").await["items"], json!([]));
    let set = server.form("", "/console/archive/act/rule", &[&given[..], &rule].concat()).await;
    assert_eq!(set.status(), 303);
    let listed = get("/v1/retention").await;
    let set = &listed["items"][0];
    assert_eq!((&set["name"], &set["ttl_days"], &set["reason"]), (&json!("order_placed"), &json!(30), &json!("why")));
    for (name, status) in [("a b", 422), ("case-7", 303)] {
        let hold = [&given[..], &[("name", name), ("event_types", "a, b")]].concat();
        let answer = server.form("", "/console/archive/act/hold", &hold).await;
        assert_eq!(answer.status(), status, "{name}");
        let shown = answer.text().await.expect("text");
        assert_eq!(status == 422, shown.contains("value=\"a b\""), "what was typed stays: {shown}");
    }
    assert_eq!(get("/v1/holds/case-7").await["filter"], json!({"event_types": ["a", "b"]}));
    for (act, name) in [("lift", "case-7"), ("rule-remove", "order_placed")] {
        let fields = [&given[..], &[("name", name)]].concat();
        let answer = server.form("", &format!("/console/archive/act/{act}"), &fields).await;
        assert_eq!(answer.status(), 303, "{act}");
    }
    assert_eq!(get("/v1/holds/case-7").await["code"], "unknown_hold");
    assert_eq!(get("/v1/retention").await["items"], json!([]));
}
