//! Acts. A form shows first what an act will do and the current state of its target. It is carried out with a reason and the session's
//! token.

use askama::Template;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};

use crate::components::{Cell, Facts, Notice};
use crate::console::{Console, see_other};
use crate::page::{Act, parameters};
use crate::values::text;
use crate::view::{Parameters, Refused, View, with};

/// The maximum length of a reason.
const REASON_CHARS_MAX: usize = 1_000;

#[derive(Template)]
#[template(path = "act.html")]
struct Asked {
    title: &'static str,
    about: String,
    target: Facts,
    action: String,
    token: String,
    parameters: Vec<(String, String)>,
    fields: Vec<Shown>,
    reason: String,
    back: String,
    now: Vec<String>,
    problem: Option<Notice>,
    dry_run: bool,
    /// The result of a dry run.
    outcome: Option<Facts>,
}

struct Shown {
    name: &'static str,
    label: &'static str,
    hint: &'static str,
    value: String,
    required: bool,
    choices: &'static [&'static str],
}

/// The messages above the form of an act.
#[derive(Default)]
pub(crate) struct Said {
    problem: Option<Refused>,
    outcome: Option<Facts>,
}

#[derive(Template)]
#[template(path = "answer.html")]
struct Answered {
    title: &'static str,
    key: Option<String>,
    facts: Facts,
    back: String,
}

/// Shows what an act will do, and asks for a reason.
pub(crate) async fn ask(console: &Console, view: &View, act: &'static Act, said: Said) -> Response {
    let Said { problem, outcome } = said;
    if let Some(refused) = Console::forbidden(view, act.permission) {
        return console.refusal(view, act.title, &refused);
    }
    let mut now = Vec::new();
    for path in act.shows {
        // A document whose parameters the link did not supply cannot be shown.
        if parameters(path).any(|name| view.parameter(name).is_none()) {
            continue;
        }
        match view.get(&view.filled(path)).await {
            Ok(document) => now.push(Facts::of(&document).to_string()),
            // If the caller may not see the target, the whole page is refused.
            Err(refused) if now.is_empty() && problem.is_none() => return console.refusal(view, act.title, &refused),
            Err(refused) => now.push(refused.notice().to_string()),
        }
    }
    // Nothing of an act is shown for a tenant that the caller may not see.
    if let Err(refused) = view.get("/v1").await {
        return console.refusal(view, act.title, &refused);
    }
    let of_link = |name: &str| {
        !matches!(name, "tenant" | "reason" | "token" | "dry_run")
            && !act.fields.iter().any(|field| field.name == name && !field.given)
    };
    let given: Vec<(String, String)> = view
        .parameters
        .iter()
        .filter(|(name, value)| of_link(name) && !value.is_empty())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let target = given.iter().fold(Facts::default(), |facts, (name, value)| facts.with(name, Cell::text(value)));
    let mut hidden = view.hidden();
    hidden.extend(given);
    let fields = act.fields.iter().filter(|field| !field.given).map(|field| Shown {
        name: field.name,
        label: field.label,
        hint: field.hint,
        value: view.value(field.name),
        required: field.required,
        choices: field.choices,
    });
    let status = problem.as_ref().map_or(StatusCode::OK, |problem| problem.status);
    let asked = Asked {
        title: act.title,
        about: view.about(act),
        target,
        action: format!("/console/{}/act/{}", view.page.id, act.id),
        token: view.token.clone(),
        parameters: hidden,
        fields: fields.collect(),
        reason: view.value("reason"),
        back: view.back(act),
        now,
        problem: problem.map(|problem| problem.notice()),
        dry_run: act.dry_run,
        outcome,
    };
    match asked.render() {
        Ok(body) => console.answer(view, status, act.title, &body),
        Err(error) => console.refusal(view, act.title, &error.into()),
    }
}

/// Carries out an act.
pub(crate) async fn carry_out(console: &Console, mut view: View, act: &'static Act, form: Parameters) -> Response {
    if let Some(refused) = Console::forbidden(&view, act.permission) {
        return console.refusal(&view, act.title, &refused);
    }
    if let Err(refused) = Console::is_meant(&view, form.get("token")) {
        return console.refusal(&view, act.title, &refused);
    }
    view.parameters = form;
    view.parameters.remove("token");
    let looks = act.dry_run && view.value("dry_run") == "true";
    let mut body = match body(&view, act) {
        Ok(body) => body,
        Err(detail) => {
            let refused = Refused::new(StatusCode::UNPROCESSABLE_ENTITY, "The act was not carried out.", detail);
            return ask(console, &view, act, Said { problem: Some(refused), outcome: None }).await;
        }
    };
    if looks {
        body["dry_run"] = true.into();
    }
    match view.send(act.method.method(), &view.filled(act.path), Some(&body)).await {
        Err(refused) => ask(console, &view, act, Said { problem: Some(refused), outcome: None }).await,
        Ok(answer) if looks => {
            ask(console, &view, act, Said { problem: None, outcome: Some(Facts::of(&answer)) }).await
        }
        Ok(answer) if act.answers => answered(console, &view, act, &answer),
        Ok(answer) => {
            let back = match act.leads {
                Some((page, parameter, field)) => view.link(page, &[(parameter, &text(&answer, field))]),
                None => view.back(act),
            };
            let page = act.leads.map_or(view.page.id, |(page, _, _)| page);
            // The page that the browser is redirected to reports the act as done, if it is one of that page's acts.
            let done = if page == view.page.id { act.id } else { "" };
            see_other(&with(&back, &[("done", done)])).into_response()
        }
    }
}

/// Builds the body of the operation.
fn body(view: &View, act: &Act) -> Result<Value, String> {
    for name in parameters(act.path) {
        if view.parameter(name).is_none() {
            return Err(format!("The parameter {name} is missing; open the act from its page."));
        }
    }
    let reason = view.value("reason");
    let reason = reason.trim();
    if reason.is_empty() {
        return Err("Give a reason; it is recorded with the act.".to_owned());
    }
    if reason.chars().count() > REASON_CHARS_MAX {
        return Err(format!("A reason may have at most {REASON_CHARS_MAX} characters."));
    }
    let mut body = Map::new();
    body.insert("reason".to_owned(), reason.into());
    for field in act.fields {
        match view.parameter(field.name) {
            // A field that is part of the path does not belong in the body.
            Some(_) if parameters(act.path).any(|name| name == field.name) => {}
            Some(value) => {
                let value = field.kind.read(value).map_err(|why| format!("{}: {why}", field.label))?;
                put(&mut body, field.name, value);
            }
            None if field.required => return Err(format!("{} is missing.", field.label)),
            None => {}
        }
    }
    Ok(Value::Object(body))
}

/// Inserts a value under a name; dots denote nested objects.
pub(crate) fn put(body: &mut Map<String, Value>, name: &str, value: Value) {
    match name.split_once('.') {
        None => drop(body.insert(name.to_owned(), value)),
        Some((outer, inner)) => {
            let object = body.entry(outer).or_insert_with(|| Map::new().into());
            if let Some(object) = object.as_object_mut() {
                put(object, inner, value);
            }
        }
    }
}

fn answered(console: &Console, view: &View, act: &'static Act, answer: &Value) -> Response {
    let key = Some(text(answer, "key")).filter(|key| !key.is_empty());
    let mut rest = answer.clone();
    if let Some(rest) = rest.as_object_mut() {
        rest.remove("key");
    }
    let answered = Answered { title: act.title, key, facts: Facts::of(&rest), back: view.link(view.page.id, &[]) };
    match answered.render() {
        Ok(body) => console.answer(view, StatusCode::OK, act.title, &body),
        Err(error) => console.refusal(view, act.title, &error.into()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_with_dots_leads_into_objects() {
        let mut body = Map::new();
        put(&mut body, "filter.user_id", "ada".into());
        put(&mut body, "filter.event_types", json!(["a"]));
        put(&mut body, "speed", json!(2.0));
        assert_eq!(Value::Object(body), json!({"filter": {"user_id": "ada", "event_types": ["a"]}, "speed": 2.0}));
    }
}
