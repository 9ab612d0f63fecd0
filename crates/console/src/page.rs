//! The definition of a page: its place in the menu, its permission, and its acts.

use annals_core::credentials::{Grant, Role};
use axum::http::Method;
use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::pages::PAGES;
use crate::view::{Refused, View};

/// A page and its acts.
pub(crate) struct Page {
    /// The page's name in the address, `/console/{id}`.
    pub id: &'static str,
    pub title: &'static str,
    pub group: Group,
    pub permission: Permission,
    /// Whether it is rendered again while it is open.
    pub live: bool,
    pub render: Render,
    pub acts: &'static [Act],
    /// The downloads that it offers.
    pub files: &'static [File],
}

/// A download that a page offers: one operation of the API, with the parameters of the link.
pub(crate) struct File {
    /// The download's name in the address, `/console/{page}/file/{id}`.
    pub id: &'static str,
    /// The text of its link.
    pub title: &'static str,
    pub permission: Permission,
    /// The path of the operation.
    pub path: &'static str,
}

/// Renders the content of a page.
pub(crate) type Render = for<'a> fn(&'a View) -> BoxFuture<'a, Result<String, Refused>>;

/// The group of the menu that lists a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    Events,
    Processing,
    Data,
    Server,
}

impl Group {
    pub const ALL: [Self; 4] = [Self::Events, Self::Processing, Self::Data, Self::Server];

    pub const fn title(self) -> &'static str {
        match self {
            Self::Events => "Events",
            Self::Processing => "Processing",
            Self::Data => "Data",
            Self::Server => "Server",
        }
    }
}

/// The permission that a page or an act requires. The operations that a page calls check it as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    Reader,
    Operator,
    Admin,
}

impl Permission {
    /// Returns whether a grant includes the permission. At a server without credentials there is no grant, and every caller has it.
    pub fn is_of(self, grant: Option<&Grant>) -> bool {
        let Some(grant) = grant else { return true };
        match self {
            Self::Reader => true,
            Self::Operator => grant.has(Role::Operator),
            Self::Admin => grant.administers_the_store(),
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reader => "reader",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

/// The methods of acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Post,
    Put,
    Patch,
    Delete,
}

impl Verb {
    pub const fn method(self) -> Method {
        match self {
            Self::Post => Method::POST,
            Self::Put => Method::PUT,
            Self::Patch => Method::PATCH,
            Self::Delete => Method::DELETE,
        }
    }
}

/// An act of a page: one operation of the API, with a reason.
pub(crate) struct Act {
    /// The act's name in the address, `/console/{page}/act/{id}`.
    pub id: &'static str,
    /// The text of its button.
    pub title: &'static str,
    pub permission: Permission,
    pub method: Verb,
    /// The path of the operation. Its parameters, in braces, are those of the act.
    pub path: &'static str,
    /// The description of what it will do. Parameters in braces are filled in.
    pub about: &'static str,
    /// The fields of the body besides the reason.
    pub fields: &'static [Field],
    /// Documents that show the current state of the target, as paths of the API.
    pub shows: &'static [&'static str],
    /// Whether the response is shown, because it cannot be read again.
    pub answers: bool,
    /// Whether the operation supports a dry run, which the form offers first.
    pub dry_run: bool,
    /// The parameters with which the browser returns to the page.
    pub back: &'static [&'static str],
    /// The redirect that replaces the return: a page, its parameter, and the field of the response that supplies it.
    pub leads: Option<(&'static str, &'static str, &'static str)>,
}

impl Act {
    /// Creates an act of an operator that posts a reason.
    pub const fn post(id: &'static str, title: &'static str, path: &'static str, about: &'static str) -> Self {
        Self {
            id,
            title,
            permission: Permission::Operator,
            method: Verb::Post,
            path,
            about,
            fields: &[],
            shows: &[],
            answers: false,
            dry_run: false,
            back: &["name"],
            leads: None,
        }
    }

    /// Creates an act of an operator that deletes something, with a reason.
    pub const fn delete(id: &'static str, title: &'static str, path: &'static str, about: &'static str) -> Self {
        // What was deleted has no page any more.
        Self { method: Verb::Delete, back: &[], ..Self::post(id, title, path, about) }
    }

    /// Sets another method.
    #[must_use]
    pub const fn by(self, method: Verb) -> Self {
        Self { method, ..self }
    }

    /// Declares that the operation supports a dry run.
    #[must_use]
    pub const fn dry_run(self) -> Self {
        Self { dry_run: true, ..self }
    }

    /// Returns to the page with these parameters.
    #[must_use]
    pub const fn back(self, back: &'static [&'static str]) -> Self {
        Self { back, ..self }
    }

    /// Redirects to the page that shows what was created.
    #[must_use]
    pub const fn leads(self, page: &'static str, parameter: &'static str, field: &'static str) -> Self {
        Self { leads: Some((page, parameter, field)), ..self }
    }

    #[must_use]
    pub const fn fields(self, fields: &'static [Field]) -> Self {
        Self { fields, ..self }
    }

    #[must_use]
    pub const fn shows(self, shows: &'static [&'static str]) -> Self {
        Self { shows, ..self }
    }
}

/// A field of the body of an act.
pub(crate) struct Field {
    /// The field's name; dots denote nested objects.
    pub name: &'static str,
    pub label: &'static str,
    pub hint: &'static str,
    pub kind: Kind,
    pub required: bool,
    /// Whether the link to the act supplies the value, so that it is not entered.
    pub given: bool,
    /// The choices; if empty, any text can be entered.
    pub choices: &'static [&'static str],
}

impl Field {
    /// Creates a field that the user fills in.
    pub const fn new(name: &'static str, label: &'static str, hint: &'static str, kind: Kind) -> Self {
        Self { name, label, hint, kind, required: true, given: false, choices: &[] }
    }

    /// Creates a field for which one of these values is chosen.
    pub const fn choice(name: &'static str, label: &'static str, choices: &'static [&'static str]) -> Self {
        Self { choices, ..Self::new(name, label, "", Kind::Text) }
    }

    /// Allows the field to be left empty.
    pub const fn optional(self) -> Self {
        Self { required: false, ..self }
    }

    /// Creates a field for a number that the link to the act supplies.
    pub const fn given(name: &'static str) -> Self {
        Self { name, label: "", hint: "", kind: Kind::Number, required: false, given: true, choices: &[] }
    }
}

/// The type of a field, which determines how its text is converted to JSON.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Text,
    Number,
    /// A number that may have a fraction.
    Decimal,
    /// Words separated by commas.
    List,
    /// JSON.
    Json,
    /// A position, a word or a time.
    Place,
}

impl Kind {
    /// Parses a text.
    pub fn read(self, text: &str) -> Result<Value, String> {
        let text = text.trim();
        match self {
            Self::Text => Ok(text.into()),
            Self::List => Ok(text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect()),
            Self::Number => text.parse::<u64>().map(Value::from).map_err(|_| format!("{text:?} is not a number")),
            Self::Decimal => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(number.into()),
                _ => Err(format!("{text:?} is not a number")),
            },
            Self::Json => serde_json::from_str(text).map_err(|error| format!("this is not JSON: {error}")),
            Self::Place => Ok(match text.parse::<u64>() {
                Ok(number) => number.into(),
                Err(_) if text.starts_with(|c: char| c.is_ascii_digit()) => serde_json::json!({ "time": text }),
                Err(_) => text.into(),
            }),
        }
    }
}

/// A page, for tests and documents that cover all of them.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PageListed {
    /// The page's address.
    pub path: String,
    /// The page's title.
    pub title: &'static str,
    /// The role that the page requires.
    pub permission: &'static str,
    /// Whether the page is rendered again while it is open.
    pub live: bool,
    /// The page's acts.
    pub acts: Vec<ActListed>,
}

/// An act of a page.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ActListed {
    /// The act's address.
    pub path: String,
    /// The text of the act's button.
    pub title: &'static str,
    /// The parameters that the act's address requires.
    pub parameters: Vec<&'static str>,
}

/// Lists every page, in the order of the menu.
pub fn listing() -> Vec<PageListed> {
    let act = |page: &Page, act: &Act| ActListed {
        path: format!("/console/{}/act/{}", page.id, act.id),
        title: act.title,
        parameters: parameters(act.path).collect(),
    };
    let pages = PAGES.iter().map(|page| PageListed {
        path: address(page),
        title: page.title,
        permission: page.permission.as_str(),
        live: page.live,
        acts: page.acts.iter().map(|of_page| act(page, of_page)).collect(),
    });
    pages.collect()
}

/// Returns the page with this name.
pub(crate) fn find(id: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.id == id)
}

/// Returns the address of a page.
pub(crate) fn address(page: &Page) -> String {
    if page.id == "overview" { "/".to_owned() } else { format!("/console/{}", page.id) }
}

/// Returns the names in braces in a path of the API.
pub(crate) fn parameters(path: &'static str) -> impl Iterator<Item = &'static str> {
    path.split('{').skip(1).filter_map(|part| part.split_once('}').map(|(name, _)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_and_act_has_an_address_of_its_own() {
        let mut paths: Vec<String> = listing().iter().map(|page| page.path.clone()).collect();
        paths.extend(listing().into_iter().flat_map(|page| page.acts).map(|act| act.path));
        let count = paths.len();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), count);
    }

    #[test]
    fn a_place_is_a_position_a_word_or_a_time() {
        let read = |text: &str| Kind::Place.read(text).expect("a place").to_string();
        assert_eq!((read(" 7 "), read("latest")), ("7".to_owned(), "\"latest\"".to_owned()));
        assert_eq!(read("2026-03-01T12:00:00Z"), r#"{"time":"2026-03-01T12:00:00Z"}"#);
        assert!(Kind::Number.read("x").is_err());
        assert!(Kind::Decimal.read("NaN").is_err() && Kind::Json.read("{").is_err());
        assert_eq!(Kind::Decimal.read("0.5"), Ok(serde_json::json!(0.5)));
    }
}
