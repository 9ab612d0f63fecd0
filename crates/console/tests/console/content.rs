//! What the pages show of what is stored, cell by cell.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::{Value, json};

use crate::running::{HOSTILE, Running, encoded, until};

/// Text without its tags.
fn plain(html: &str) -> String {
    html.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text)).collect()
}

/// The rows of a table of a page; none where the table has no rows.
fn rows(page: &str, table: &str) -> Vec<Vec<String>> {
    let mark = format!("<table id=\"{table}\">");
    let Some((_, rest)) = page.split_once(&mark) else { return Vec::new() };
    let (_, body) = rest.split_once("<tbody>").expect("a body");
    let (body, _) = body.split_once("</tbody>").expect("its end");
    let cell = |cell: &str| plain(&format!("<td{cell}")).trim().to_owned();
    body.split("<tr>").skip(1).map(|row| row.split("<td").skip(1).map(cell).collect()).collect()
}

/// The cells of the first row of a table that begins with this text.
#[track_caller]
fn row(page: &str, table: &str, first: &str) -> Vec<String> {
    let found = rows(page, table).into_iter().find(|row| row[0] == first);
    found.unwrap_or_else(|| panic!("no row {first:?} in the table {table}: {page}"))
}

/// The names and values of a page.
fn facts(page: &str) -> BTreeMap<String, String> {
    let facts = page.split("<dt>").skip(1);
    facts.filter_map(|fact| fact.split_once("</dt>")).map(|(name, rest)| (plain(name), value(rest))).collect()
}

fn value(rest: &str) -> String {
    let (value, _) = rest.split_once("</dd>").expect("a value");
    plain(value).trim().to_owned()
}

async fn filled() -> Running {
    let server = Running::dev().await;
    server.fill("default").await;
    server
}

async fn page(server: &Running, path: &str) -> String {
    let (status, text) = server.page("", path).await;
    assert_eq!(status, 200, "{path}: {text}");
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_caused_one_another_are_shown_as_a_tree_each_below_its_cause() {
    let server = Running::dev().await;
    let commit = async |id: &str, kind: &str, more: Value| {
        let mut body = json!({"aggregate": {"name": "order", "id": id}, "events": [{"type": kind, "data": {}}]});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        server.put("default", Method::POST, "/v1/commits", body).await
    };
    let placed = commit("o-1", "placed", json!({"correlation_id": "c-1"})).await;
    let cause = &placed["events"][0]["id"];
    let paid = commit("o-2", "paid", json!({"correlation_id": "c-1", "causation_id": cause})).await;
    // One that nothing known caused, and one of another correlation.
    commit("o-3", "noted", json!({"correlation_id": "c-1", "causation_id": "elsewhere"})).await;
    commit("o-4", "unrelated", json!({"correlation_id": "c-2", "causation_id": cause})).await;
    // A commit is a cause as well.
    commit("o-5", "shipped", json!({"correlation_id": "c-1", "causation_id": paid["commit_id"]})).await;
    for this in [0, 1, 4] {
        let text = page(&server, &format!("/console/event?number={this}")).await;
        let (_, tree) = text.split_once("<ul class=\"tree\">").unwrap_or_else(|| panic!("no tree: {text}"));
        let (tree, _) = tree.split_once("</ul>").expect("its end");
        let branches: Vec<&str> = tree.split("<li>").skip(1).collect();
        let expected = [
            (0, "", "placed order/o-1"),
            (1, "\u{2003}└ ", "paid order/o-2"),
            (4, "\u{2003}\u{2003}└ ", "shipped order/o-5"),
            (2, "", "noted order/o-3"),
        ];
        let expected = expected.map(|(number, indent, text)| {
            let mark = if number == this { " class=\"this\" aria-current=\"true\"" } else { "" };
            format!("{indent}<a href=\"/console/event?number={number}\"{mark}>{number} {text}</a></li>")
        });
        assert_eq!(branches, expected, "of event {this}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_shown_with_its_fields_and_whole_as_json() {
    let server = filled().await;
    let text = page(&server, "/console/event?number=1").await;
    let facts = facts(&text);
    assert_eq!((&*facts["number"], &*facts["type"], &*facts["version"]), ("1", "order_placed", "2"));
    let (_, whole) = text.split_once("The whole event as JSON</summary>").expect("the whole event");
    let (whole, _) = whole.split_once("</details>").expect("its end");
    for field in ["sequence_number", "commit_id", "aggregate", "metadata", "correlation_id", "data"] {
        assert!(whole.contains(&format!("&#34;{field}&#34;: ")), "{field}: {whole}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_is_shown_with_the_origin_of_each_value() {
    let server = filled().await;
    let configuration = page(&server, "/console/configuration").await;
    assert_eq!(row(&configuration, "configuration", "store.url"), ["store.url", "&#34;memory:&#34;", "of a test"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_listed_and_shown_with_their_entries() {
    let server = filled().await;
    let list = page(&server, "/console/streams").await;
    assert_eq!(row(&list, "streams", "orders"), ["orders", "3", "3", "filter"]);
    let one = page(&server, "/console/streams?name=orders").await;
    let entries = rows(&one, "entries");
    assert_eq!(entries.len(), 3, "{one}");
    for (place, entry) in entries.iter().enumerate() {
        let (position, number) = (&entry[0], &entry[2]);
        assert_eq!((position, number, &*entry[4]), (&place.to_string(), &place.to_string(), "order_placed"));
        assert!(entry[8].contains(&format!("&#34;total&#34;:{place}")), "{entry:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_are_found_by_aggregate_and_shown_with_their_state() {
    let server = filled().await;
    let names = page(&server, "/console/snapshots").await;
    assert_eq!(rows(&names, "names"), [["order"]]);
    let of_name = page(&server, "/console/snapshots?name=order").await;
    let listed = rows(&of_name, "snapshots");
    assert!(listed.len() == 1 && listed[0][1] == "2" && listed[0][3].contains("text"), "{of_name}");
    let id = encoded(&format!("o-{HOSTILE}"));
    let one = page(&server, &format!("/console/snapshots?name=order&id={id}")).await;
    assert_eq!(facts(&one)["version"], "2");
    let (_, state) = one.split_once("<details id=\"json-state\"").expect("a state");
    assert!(state.contains("&#34;text&#34;: "), "{one}");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_listed_with_their_state() {
    let server = filled().await;
    let keys = page(&server, "/console/keys?name=user").await;
    let eva = row(&keys, "keys", "eva");
    assert!(eva[1].contains("script") && eva[3] == "held", "{eva:?}");
    let none = page(&server, "/console/keys?name=other").await;
    assert!(none.contains("No key of this name is held."), "{none}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_are_listed_and_the_events_of_one_counted() {
    let server = filled().await;
    let tenants = page(&server, "/console/tenants").await;
    assert_eq!(row(&tenants, "tenants", "default")[..3], ["default", "default", "3"]);
    let facts = facts(&tenants);
    assert_eq!((&*facts["events"], &*facts["commits"], &*facts["aggregates"]), ("3", "3", "1"));
    assert_eq!(row(&tenants, "by-type", "order_placed"), ["order_placed", "3"]);
    assert_eq!(row(&tenants, "by-name", "order"), ["order", "1"], "one aggregate");
}

#[tokio::test(flavor = "multi_thread")]
async fn event_types_are_listed_and_shown_with_their_generations() {
    let server = filled().await;
    let types = page(&server, "/console/types").await;
    let listed = row(&types, "types", "order_placed");
    assert_eq!((&*listed[1], &*listed[4]), ("1", "events"));
    assert!(types.contains("href=\"/console/log?types=order_placed\""), "{types}");
    let one = page(&server, "/console/types?name=order_placed").await;
    assert_eq!(facts(&one)["generation"], "1");
    let generations = rows(&one, "generations");
    assert!(generations.len() == 1 && generations[0][0] == "1" && generations[0][2].contains("description"), "{one}");
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_are_listed_and_shown_with_their_topics() {
    let server = filled().await;
    let groups = page(&server, "/console/groups").await;
    assert_eq!(row(&groups, "groups", "mailers")[5..7], ["0", "0"], "nothing fails, and nothing is parked");
    let one = page(&server, "/console/groups?name=mailers").await;
    assert!(one.contains("Group mailers"), "{one}");
    assert_eq!(row(&one, "topics", "order_placed").len(), 2);
    assert!(one.contains("href=\"/console/groups/act/pause?name=mailers\""), "{one}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sagas_are_listed_and_counted_and_each_is_shown_with_the_timeline_of_its_steps() {
    let server = Running::dev().await;
    let definition = json!({"start": {"on": ["order_placed"]}, "steps": [
        {"name": "reserve", "publish": {"type": "reserve_stock"},
         "compensation": {"name": "release", "publish": {"type": "release_stock"}}},
        {"name": "pay", "await": {"on": ["order_paid"], "fail_on": ["declined"]}},
    ]});
    server.put("default", Method::PUT, "/v1/saga-definitions/order", definition).await;
    for (id, kind) in [("o-1", "order_placed"), ("o-2", "order_placed"), ("o-1", "declined"), ("o-2", "order_paid")] {
        let commit = json!({"aggregate": {"name": "order", "id": id}, "events": [{"type": kind, "data": {}}]});
        server.put("default", Method::POST, "/v1/commits", commit).await;
    }
    until("both sagas have ended", || async {
        let counted = facts(&page(&server, "/console/sagas?statistics=yes").await);
        let is_one = |state: &str| counted.get(state).is_some_and(|count| count == "1");
        is_one("completed") && is_one("failed") && counted["sagas"] == "2" && counted["need an operator"] == "0"
    })
    .await;
    let list = rows(&page(&server, "/console/sagas?name=order&state=failed").await, "sagas");
    let [failed] = &list[..] else { panic!("{list:?}") };
    assert_eq!(
        [&failed[1], &failed[2], &failed[3], &failed[5], &failed[6]],
        ["order", "o-1", "failed", "reserve", "declined came"]
    );
    let one = page(&server, &format!("/console/sagas?id={}", failed[0])).await;
    let steps = rows(&one, "steps");
    let steps: Vec<_> = steps.iter().map(|step| [&*step[1], &*step[2], &*step[3], &*step[4]]).collect();
    let expected = [
        ["reserve", "action", "1", "completed"],
        ["pay", "action", "1", "failed"],
        ["release", "compensation", "1", "completed"],
    ];
    assert_eq!(steps, expected, "{one}");
    let shown = facts(&one);
    assert_eq!((&*shown["state"], &*shown["cause"], &*shown["undone"]), ("failed", "declined came", "release"));

    let definitions = page(&server, "/console/saga-definitions").await;
    assert_eq!(row(&definitions, "definitions", "order")[..6], ["order", "1", "order_placed", "2", "0", "0"]);
    let drawn = page(&server, "/console/saga-definitions?name=order").await;
    let (_, diagram) = drawn.split_once("<svg class=\"diagram\"").expect("a diagram");
    let (diagram, _) = diagram.split_once("</svg>").expect("its end");
    for text in
        ["starts on order_placed", "1. reserve", "undone by release", "2. pay", "awaits order_paid", "completed"]
    {
        assert!(diagram.contains(&format!(">{text}</text>")), "{text} is not in {diagram}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_listed_and_shown_with_their_items() {
    let server = Running::dev().await;
    let put = async |method: Method, path: &str, body: Value| server.put("default", method, path, body).await;
    put(Method::PUT, "/v1/queues/renders", json!({"cap": 1})).await;
    for item in [json!({"id": "r-1", "priority": "high", "user": "eva"}), json!({"id": "r-2"})] {
        put(Method::POST, "/v1/queues/renders/enqueue", item).await;
    }
    put(Method::POST, "/v1/queues/renders/take", json!({"worker": "w-1", "lease_ms": 3_600_000})).await;
    let queues = page(&server, "/console/queues").await;
    assert_eq!(row(&queues, "queues", "renders")[..7], ["renders", "1 of 1", "0", "0", "1", "0", "0"]);
    let one = page(&server, "/console/queues?name=renders").await;
    assert_eq!(rows(&one, "pending"), [["0", "0", "1", "0", "0"]]);
    let (active, pending) = (row(&one, "items", "r-1"), row(&one, "items", "r-2"));
    assert_eq!(
        [&*active[1], &*active[2], &*active[3], &*active[5], &*active[6]],
        ["active", "high", "eva", "1", "w-1"]
    );
    assert_eq!([&*pending[1], &*pending[2], &*pending[5]], ["pending", "normal", "0"]);
    let release = |item: &[String]| item[8].contains("Release");
    assert!(release(&active) && !release(&pending), "only an active item is released");
    let facts = facts(&one);
    let counts = ["active", "enqueued", "handed out", "done", "lost"].map(|name| &*facts[name]);
    assert_eq!(counts, ["1 of 1", "2", "1", "0", "0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_are_listed_with_how_far_they_are() {
    let server = filled().await;
    until("the filter has evaluated everything", || async {
        let filters = page(&server, "/console/filters").await;
        row(&filters, "filters", "orders") == ["orders", "default", "running", "3", "0", "3", ""]
    })
    .await;
    let one = page(&server, "/console/filters?name=orders").await;
    let facts = facts(&one);
    assert_eq!((&*facts["state"], &*facts["position"], &*facts["entries"]), ("running", "3", "3"));
    assert!(one.contains("href=\"/console/streams?name=orders\""), "{one}");
}

#[tokio::test(flavor = "multi_thread")]
async fn consents_are_listed_and_a_tenant_without_subscriptions_says_so() {
    let server = filled().await;
    let horizon = page(&server, "/console/horizon").await;
    let consent = row(&horizon, "consents", "c-1");
    assert_eq!((&*consent[3], &*consent[5]), ("public-orders", "Revoke consent"));
    assert!(horizon.contains("This tenant has no subscription."), "{horizon}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_overview_shows_the_head_every_processor_and_first_what_fails() {
    let server = filled().await;
    let overview = page(&server, "/").await;
    assert!(overview.contains("<b id=\"head\">3</b>") && !overview.contains("handler billing:"), "{overview}");
    assert!(overview.contains("<b id=\"rate\">") && overview.contains("<span>log on disk</span>"), "{overview}");
    assert!(overview.contains("Findings of the doctor in "), "{overview}");
    let processors = rows(&overview, "processors");
    for (kind, name) in [("handler", "billing"), ("group", "mailers"), ("projection", "totals"), ("filter", "orders")] {
        assert!(processors.iter().any(|row| row[0] == kind && row[1] == name), "no {kind} {name}: {overview}");
    }
    let billing = processors.iter().find(|row| row[1] == "billing").expect("a row");
    assert_eq!((&*billing[3], &*billing[4], &*billing[7]), ("0", "3", "0"), "position, head and failing");
    server.fail("default").await;
    until("the failure is shown first", || async {
        let overview = page(&server, "/").await;
        let first = rows(&overview, "processors").swap_remove(0);
        overview.contains("<strong>handler billing: ") && first[1] == "billing" && first[7] == "1"
    })
    .await;
}
