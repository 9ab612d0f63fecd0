//! `GET /v1/log` as pages, and single events.

use annals_core::Code;
use serde_json::{Value, json};

use crate::running::Running;

/// 30 events: types a, b, c in turn, three aggregates, every fifth tagged.
async fn mixed() -> Running {
    let server = Running::start().await;
    for n in 0..30 {
        let tags: &[&str] = match n {
            n if n % 10 == 0 => &["five", "ten", "x,y"],
            n if n % 5 == 0 => &["five"],
            _ => &[],
        };
        let kind = ["a", "b", "c"][n % 3];
        let aggregate = json!({"name": if n < 20 { "low" } else { "high" }, "id": format!("{}", n % 2)});
        let body = json!({"aggregate": aggregate, "events": [{"type": kind, "data": {"n": n}, "tags": tags}]});
        server.commit(&body).await;
    }
    server
}

fn numbers(page: &Value) -> Vec<u64> {
    let events = page["events"].as_array().expect("a list");
    events.iter().map(|event| event["sequence_number"].as_u64().expect("a number")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_go_on_from_next_in_both_directions() {
    let server = mixed().await;
    let forwards = server.get("/v1/log?limit=12").await.json();
    assert_eq!(numbers(&forwards), (0..12).collect::<Vec<_>>());
    assert_eq!((&forwards["next"], &forwards["head"]), (&json!(12), &json!(30)));
    let rest = server.get("/v1/log?from=12").await.json();
    assert_eq!(numbers(&rest), (12..30).collect::<Vec<_>>());
    assert_eq!(rest["next"], 30);
    let end = server.get("/v1/log?from=30").await.json();
    assert_eq!(end, json!({"events": [], "next": 30, "head": 30}));

    let mut seen = Vec::new();
    let mut from = String::new();
    loop {
        let page = server.get(&format!("/v1/log?backwards&limit=7{from}")).await.json();
        if numbers(&page).is_empty() {
            break;
        }
        seen.extend(numbers(&page));
        from = format!("&from={}", page["next"]);
    }
    assert_eq!(seen, (0..30).rev().collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_past_the_head_is_empty_and_says_where_the_head_is() {
    let server = mixed().await;
    for from in ["30", "31", "18446744073709551615"] {
        let page = server.get(&format!("/v1/log?from={from}")).await.json();
        assert_eq!(page, json!({"events": [], "next": 30, "head": 30}), "{from}");
    }
    assert_eq!(numbers(&server.get("/v1/log?from=99&backwards=true&limit=2").await.json()), [29, 28]);
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_find_exactly_what_they_name() {
    let server = mixed().await;
    let all: Vec<u64> = (0..30).collect();
    let only = |keep: fn(&u64) -> bool| all.iter().copied().filter(keep).collect::<Vec<_>>();
    for (query, expected) in [
        ("types=a", only(|n| n % 3 == 0)),
        ("types=a,c", only(|n| n % 3 != 1)),
        ("types=a%2Cc", only(|n| n % 3 != 1)),
        ("types=nothing", vec![]),
        ("tags=five", only(|n| n % 5 == 0)),
        ("tags=five,ten", only(|n| n % 10 == 0)),
        (r"tags=x\,y", only(|n| n % 10 == 0)),
        ("aggregate=high", only(|n| *n >= 20)),
        ("aggregate=low/1", only(|n| *n < 20 && n % 2 == 1)),
        ("aggregate=low%2F1&types=b&tags=five", only(|n| *n < 20 && n % 2 == 1 && n % 3 == 1 && n % 5 == 0)),
        ("types=a&from=10&limit=3", vec![12, 15, 18]),
        ("types=a&from=10&limit=3&backwards=true", vec![9, 6, 3]),
        ("aggregate=high&backwards=false", only(|n| *n >= 20)),
    ] {
        let page = server.get(&format!("/v1/log?{query}")).await.json();
        assert_eq!(numbers(&page), expected, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn filtered_pages_reach_the_end_without_a_gap() {
    let server = mixed().await;
    let (mut seen, mut from) = (Vec::new(), 0);
    loop {
        let page = server.get(&format!("/v1/log?types=b&limit=3&from={from}")).await.json();
        if numbers(&page).is_empty() {
            break;
        }
        seen.extend(numbers(&page));
        from = page["next"].as_u64().expect("a number");
    }
    assert_eq!(seen, (0..30).filter(|n| n % 3 == 1).collect::<Vec<u64>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_event_is_read_by_its_number() {
    let server = mixed().await;
    let event = server.get("/v1/log/29").await.json();
    assert_eq!((&event["sequence_number"], &event["data"]), (&json!(29), &json!({"n": 29})));
    for past in ["30", "18446744073709551615"] {
        let problem = server.get(&format!("/v1/log/{past}")).await.problem(Code::UnknownEvent);
        assert_eq!(problem["head"], 30);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_log_is_read_too() {
    let server = Running::start().await;
    let empty = json!({"events": [], "next": 0, "head": 0});
    assert_eq!(server.get("/v1/log").await.json(), empty);
    assert_eq!(server.get("/v1/log?backwards").await.json(), empty);
    server.get("/v1/log/0").await.problem(Code::UnknownEvent);
}
