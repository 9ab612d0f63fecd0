//! The components of pages. Each is a template of its own, which escapes what it shows.

use askama::Template;
use serde_json::Value;

use crate::values::{count, cut, pretty, shown, tone};
use crate::view::View;

/// A link to a page or an act.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub text: String,
    pub href: String,
}

impl Link {
    pub fn new(text: impl Into<String>, href: impl Into<String>) -> Self {
        Self { text: text.into(), href: href.into() }
    }
}

/// One cell of a table.
#[derive(Debug, Default)]
pub(crate) struct Cell {
    pub text: String,
    pub href: Option<String>,
    pub class: &'static str,
    pub links: Vec<Link>,
}

impl Cell {
    /// Creates a cell with a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Creates a cell with a number.
    pub fn number(number: u64) -> Self {
        Self { text: count(number), class: "number", ..Self::default() }
    }

    /// Creates a cell with a number that is marked as bad unless it is 0.
    pub fn fault(number: u64) -> Self {
        Self { class: if number > 0 { "number bad" } else { "number" }, ..Self::number(number) }
    }

    /// Creates a cell with a text that is marked as bad.
    pub fn bad(text: impl Into<String>) -> Self {
        Self { class: "bad", ..Self::text(text) }
    }

    /// Creates a cell with the beginning of a text, as code.
    pub fn code(text: &str) -> Self {
        Self { text: cut(text), class: "code", ..Self::default() }
    }

    /// Creates a cell with a state, in its colour.
    pub fn state(state: &str) -> Self {
        Self { text: state.to_owned(), class: tone(state), ..Self::default() }
    }

    /// Creates a cell with a link.
    pub fn link(text: impl Into<String>, href: String) -> Self {
        Self { text: text.into(), href: Some(href), ..Self::default() }
    }

    /// Creates a cell with links to acts.
    pub fn links(links: Vec<Link>) -> Self {
        Self { links, class: "acts", ..Self::default() }
    }
}

/// A table with a link to its next page.
#[derive(Template, Debug, Default)]
#[template(path = "parts/table.html")]
pub(crate) struct Table {
    /// The id of the element.
    pub id: &'static str,
    pub title: String,
    pub columns: Vec<&'static str>,
    pub rows: Vec<Vec<Cell>>,
    /// The text that is shown if there are no rows.
    pub empty: &'static str,
    pub next: Option<Link>,
}

/// Names and values.
#[derive(Template, Debug, Default)]
#[template(path = "parts/facts.html")]
pub(crate) struct Facts {
    pub rows: Vec<(String, Cell)>,
}

impl Facts {
    /// Adds a fact, unless its text is empty.
    #[must_use]
    pub fn with(mut self, name: &str, cell: Cell) -> Self {
        if !cell.text.is_empty() || !cell.links.is_empty() {
            self.rows.push((name.to_owned(), cell));
        }
        self
    }

    /// Returns the fields of a document as facts.
    pub fn of(document: &Value) -> Self {
        let fields = document.as_object().into_iter().flatten();
        let rows = fields.filter(|(_, value)| !value.is_null()).map(|(name, value)| {
            let cell = match value {
                Value::Object(_) | Value::Array(_) => Cell { class: "code", ..Cell::text(value.to_string()) },
                _ if name == "state" => Cell::state(&shown(value)),
                _ => Cell::text(shown(value)),
            };
            (name.clone(), cell)
        });
        Self { rows: rows.collect() }
    }
}

/// A complete JSON document.
#[derive(Template, Debug)]
#[template(path = "parts/json.html")]
pub(crate) struct Json {
    /// The id of the element, by which it stays open when the page around it is replaced.
    pub id: String,
    pub title: String,
    pub text: String,
    pub open: bool,
}

impl Json {
    pub fn new(title: &str, value: &Value, open: bool) -> Self {
        let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
        let id = title.chars().map(letter).collect();
        Self { id, title: title.to_owned(), text: pretty(value), open }
    }
}

/// A field of a filter form.
#[derive(Debug)]
pub(crate) struct Input {
    pub name: &'static str,
    pub label: &'static str,
    pub value: String,
    pub hint: &'static str,
    /// The choices; if empty, any text can be entered.
    pub choices: &'static [&'static str],
}

impl Input {
    /// Creates a field with the value of its parameter in the address.
    pub fn of(view: &View, name: &'static str, label: &'static str, hint: &'static str) -> Self {
        Self { name, label, value: view.value(name), hint, choices: &[] }
    }

    /// Creates a field for which one of these values, or none, is chosen.
    pub fn choice(view: &View, name: &'static str, label: &'static str, choices: &'static [&'static str]) -> Self {
        Self { choices, ..Self::of(view, name, label, "") }
    }
}

/// A form that shows the page with other parameters.
#[derive(Template, Debug)]
#[template(path = "parts/search.html")]
pub(crate) struct Search {
    pub action: String,
    pub hidden: Vec<(String, String)>,
    pub inputs: Vec<Input>,
    pub button: &'static str,
}

/// A highlighted message.
#[derive(Template, Debug)]
#[template(path = "parts/notice.html")]
pub(crate) struct Notice {
    /// `good`, `warn` or `bad`.
    pub class: &'static str,
    pub title: String,
    pub text: String,
    pub link: Option<Link>,
}
