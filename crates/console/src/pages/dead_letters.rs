//! Dead letters: events that a consumer could not process, with their attempts, and the acts that end one or many.

use askama::Template;
use serde_json::{Value, json};

use crate::components::{Cell, Facts, Input, Json, Link, Search, Table};
use crate::page::{Act, Field, Group, Kind, Page, Permission, Verb};
use crate::values::{count, items, number, text};
use crate::view::{Refused, View, escape};

pub(super) const PAGE: Page = Page {
    id: "dead-letters",
    title: "Dead letters",
    group: Group::Processing,
    permission: Permission::Reader,
    live: false,
    render: |view| Box::pin(render(view)),
    files: &[],
    acts: &[
        Act::post("retry", "Retry", "/v1/dead-letters/{id}/retry", "The event is immediately redelivered to the consumer that could not process it, and to no other.").shows(NOW).back(ID),
        Act::post("discard", "Discard", "/v1/dead-letters/{id}/discard", "The letter is discarded: its consumer never processes the event. The log keeps the event, and the letter stays listed as discarded.").shows(NOW).back(ID),
        Act::post("retry-many", "Retry many", "/v1/dead-letters/retry", "Every open letter that matches the condition is redelivered to the consumer that could not process it. A dry run counts them.").dry_run().fields(CONDITION),
        Act::post("discard-many", "Discard many", "/v1/dead-letters/discard", "Every open letter that matches the condition is discarded. A dry run counts them.").dry_run().fields(CONDITION),
        Act::post("policy", "Set the policy of a topic", "/v1/dead-letters/policies/{topic}", "Dead letters of the topic {topic} are retried by this policy from now on, regardless of the policy of their category.").by(Verb::Put).shows(&["/v1/dead-letters/policies/{topic}"]).fields(&[
            Field::choice("strategy", "Strategy", &["immediate", "exponential_backoff", "fixed_interval", "scheduled", "manual"]),
            Field::new("max_retries", "Retries", "5", Kind::Number).optional(),
            Field::new("base_delay_ms", "First delay, ms", "60000", Kind::Number).optional(),
            Field::new("max_delay_ms", "Longest delay, ms", "3600000", Kind::Number).optional(),
            Field::new("multiplier", "Factor", "2", Kind::Decimal).optional(),
        ]),
        Act::delete("policy-delete", "Remove the policy of a topic", "/v1/dead-letters/policies/{topic}", "Dead letters of the topic {topic} follow the policy of their category again.").shows(&["/v1/dead-letters/policies/{topic}"]),
    ],
};

const NOW: &[&str] = &["/v1/dead-letters/{id}"];
const ID: &[&str] = &["id"];
const CONDITION: &[Field] = &[Field::new("condition", "Condition", r#"{"field":"original_topic","operator":"EQ","value":"order_placed"}"#, Kind::Json)];
const STATES: &[&str] = &["pending", "scheduled", "retried", "discarded"];
/// The filters of the list, with their labels and stored fields.
const FILTERS: [(&str, &str, &str); 5] = [
    ("topic", "Topic", "original_topic"),
    ("group", "Group", "processor"),
    ("handler", "Handler", "processor"),
    ("type", "Type", "event.event_type"),
    ("since", "Failed since", "failed_at"),
];

#[derive(Template)]
#[template(path = "dead_letters.html")]
struct DeadLetters {
    title: String,
    list: Option<List>,
    one: Option<One>,
}

struct List {
    search: Search,
    links: Vec<Link>,
    statistics: Option<Table>,
    said: String,
    table: Table,
    policies: Table,
}

struct One {
    acts: Vec<Link>,
    facts: Facts,
    history: Table,
    event: Json,
    whole: Json,
}

async fn render(view: &View) -> Result<String, Refused> {
    let letters = match view.parameter("id") {
        Some(id) => DeadLetters { title: "Dead letter".to_owned(), list: None, one: Some(one(view, id).await?) },
        None => DeadLetters { title: "Dead letters".to_owned(), list: Some(list(view).await?), one: None },
    };
    Ok(letters.render()?)
}

async fn list(view: &View) -> Result<List, Refused> {
    let names = FILTERS.iter().map(|(name, ..)| *name).chain(["status", "cursor"]);
    let values: Vec<(&str, String)> = names.map(|name| (name, view.value(name))).collect();
    let mut parameters: Vec<(&str, &str)> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
    parameters.push(("limit", "50"));
    let page = view.query("/v1/dead-letters", &parameters).await?;
    let policies = view.get("/v1/dead-letters/policies").await?;
    let condition = condition(view);
    let mut links = view.acts(&["retry-many", "discard-many"], &[("condition", &condition)]);
    links.push(Link::new("Statistics", view.link("dead-letters", &[("statistics", "yes")])));
    let (said, statistics) = statistics(view).await?;
    let mut inputs = vec![Input::choice(view, "status", "Status", STATES)];
    inputs.extend(FILTERS.iter().map(|(name, label, _)| Input::of(view, name, label, "")));
    Ok(List {
        search: Search { action: view.address(), hidden: view.hidden(), inputs, button: "Show" },
        links,
        statistics,
        said,
        table: table(view, &page),
        policies: policy_table(view, &policies),
    })
}

/// Returns the condition of a bulk act on the letters that the filters select. Without a filter it is empty, and the user has to enter
/// one.
fn condition(view: &View) -> String {
    let equal = |(name, _, field): &(&str, &str, &str)| match (*name, view.parameter(name)?) {
        ("since", since) => Some(json!({"field": field, "operator": "GTE", "value": {"$date": since}})),
        // The stored name of a consumer includes its kind.
        ("group" | "handler", consumer) => Some(json!({"field": field, "operator": "EQ", "value": format!("{name}/{consumer}")})),
        (_, value) => Some(json!({"field": field, "operator": "EQ", "value": value})),
    };
    let mut parts: Vec<Value> = FILTERS.iter().filter_map(equal).collect();
    match parts.len() {
        0 => String::new(),
        1 => parts.remove(0).to_string(),
        _ => json!({"operator": "AND", "children": parts}).to_string(),
    }
}

fn table(view: &View, page: &Value) -> Table {
    let row = |letter: &Value| {
        let id = text(letter, "id");
        let state = text(letter, "status");
        let acts = if matches!(&*state, "pending" | "scheduled") { view.acts(&["retry", "discard"], &[("id", &id)]) } else { Vec::new() };
        vec![
            Cell::text(text(letter, "failed_at")),
            Cell::link(&id, view.link("dead-letters", &[("id", &id)])),
            Cell::state(&state),
            consumer(view, letter),
            Cell::text(text(letter, "original_topic")),
            Cell::text(text(letter, "key")),
            Cell::bad(last_error(letter)),
            Cell::number(number(letter, "retry_count")),
            Cell::text(text(letter, "next_retry_at")),
            Cell::links(acts),
        ]
    };
    Table {
        id: "letters",
        title: "Dead letters".to_owned(),
        columns: vec!["failed", "letter", "status", "consumer", "topic", "key", "reason", "retries", "next attempt", "acts"],
        rows: items(page, "items").iter().map(row).collect(),
        empty: "No dead letter matches.",
        next: view.next("More", "cursor", &page["cursor"]),
    }
}

fn last_error(letter: &Value) -> String {
    let last = text(letter, "last_error");
    if last.is_empty() { text(letter, "error") } else { last }
}

fn consumer(view: &View, letter: &Value) -> Cell {
    let (group, handler) = (text(letter, "group"), text(letter, "handler"));
    let (page, name) = if group.is_empty() { ("handlers", handler) } else { ("groups", group) };
    Cell::link(&name, view.link(page, &[("name", &name)]))
}

/// Returns the statistics if they were requested, because they read every letter.
async fn statistics(view: &View) -> Result<(String, Option<Table>), Refused> {
    if view.parameter("statistics").is_none() {
        return Ok((String::new(), None));
    }
    let counted = view.get("/v1/dead-letters/statistics").await?;
    let said = format!(
        "{} open letters: {}. More than {} are a warning, more than {} critical.",
        count(number(&counted, "open")),
        text(&counted, "level"),
        number(&counted, "warning_above"),
        number(&counted, "critical_above")
    );
    let row = |topic: &Value| {
        vec![
            Cell::text(text(topic, "topic")),
            Cell::number(number(topic, "total_messages")),
            Cell::text(text(topic, "status_breakdown")),
            Cell::text(text(topic, "oldest_message")),
            Cell::text(text(topic, "newest_message")),
            Cell::text(text(topic, "avg_retry_count")),
            Cell::number(number(topic, "max_retry_count")),
        ]
    };
    let table = Table {
        id: "by-topic",
        title: "By topic".to_owned(),
        columns: vec!["topic", "letters", "by status", "oldest", "newest", "average retries", "most retries"],
        rows: items(&counted, "topics").iter().map(row).collect(),
        empty: "No dead letter exists.",
        next: None,
    };
    Ok((said, Some(table)))
}

fn policy_table(view: &View, page: &Value) -> Table {
    let row = |policy: &Value| {
        let topic = text(policy, "topic");
        let acts = view.acts(&["policy", "policy-delete"], &[("topic", &topic)]);
        let mut cells: Vec<Cell> = ["strategy", "max_retries", "base_delay_ms", "max_delay_ms", "multiplier"]
            .iter()
            .map(|name| Cell::text(text(policy, &format!("policy.{name}"))))
            .collect();
        cells.insert(0, Cell::text(&topic));
        cells.extend([Cell::text(text(policy, "reason")), Cell::links(acts)]);
        cells
    };
    Table {
        id: "policies",
        title: "Policies of topics".to_owned(),
        columns: vec!["topic", "strategy", "retries", "first delay, ms", "longest, ms", "factor", "why", "acts"],
        rows: items(page, "items").iter().map(row).collect(),
        empty: "No topic has a policy of its own.",
        next: None,
    }
}

async fn one(view: &View, id: &str) -> Result<One, Refused> {
    let letter = view.get(&format!("/v1/dead-letters/{}", escape(id))).await?;
    let topic = text(&letter, "original_topic");
    let at = text(&letter, "sequence_number");
    let mut facts = Facts::default()
        .with("status", Cell::state(&text(&letter, "status")))
        .with("reason", Cell::bad(last_error(&letter)))
        .with("first reason", Cell::text(text(&letter, "error")))
        .with("consumer", consumer(view, &letter))
        .with("topic", Cell::link(&topic, view.link("topics", &[("name", &topic)])))
        .with("event", Cell::link(&at, view.link("event", &[("number", &at)])));
    for (name, path) in [
        ("key", "key"),
        ("retries", "retry_count"),
        ("attempts of the consumer", "attempts"),
        ("failed", "failed_at"),
        ("next attempt", "next_retry_at"),
        ("retried", "retried_at"),
        ("discarded", "discarded_at"),
        ("reason for discarding", "discard_reason"),
    ] {
        facts = facts.with(name, Cell::text(text(&letter, path)));
    }
    if letter["follows"] == true {
        facts = facts.with("waits", Cell::text("for an earlier letter of its key"));
    }
    let row = |entry: &Value| ["at", "what", "reason", "by"].iter().map(|name| Cell::text(text(entry, name))).collect();
    let history = Table {
        id: "history",
        title: "History".to_owned(),
        columns: vec!["at", "what", "reason", "by"],
        rows: items(&letter, "history").iter().map(row).collect(),
        empty: "Nothing.",
        next: None,
    };
    let mut acts = match &*text(&letter, "status") {
        "pending" | "scheduled" => view.acts(&["retry", "discard"], &[("id", id)]),
        _ => Vec::new(),
    };
    acts.extend(view.act("policy", &[("topic", &topic)]));
    Ok(One { acts, facts, history, event: Json::new("The event", &letter["event"], true), whole: Json::new("The letter", &letter, false) })
}
