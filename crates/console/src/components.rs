//! What pages are made of. Each is a template of its own, which escapes what it shows.

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
    /// Text, whatever it holds.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A number.
    pub fn number(number: u64) -> Self {
        Self { text: count(number), class: "number", ..Self::default() }
    }

    /// A number that is bad unless it is 0.
    pub fn fault(number: u64) -> Self {
        Self { class: if number > 0 { "number bad" } else { "number" }, ..Self::number(number) }
    }

    /// Text that says what is wrong.
    pub fn bad(text: impl Into<String>) -> Self {
        Self { class: "bad", ..Self::text(text) }
    }

    /// The beginning of a text as code.
    pub fn code(text: &str) -> Self {
        Self { text: cut(text), class: "code", ..Self::default() }
    }

    /// A state in its colour.
    pub fn state(state: &str) -> Self {
        Self { text: state.to_owned(), class: tone(state), ..Self::default() }
    }

    /// A link.
    pub fn link(text: impl Into<String>, href: String) -> Self {
        Self { text: text.into(), href: Some(href), ..Self::default() }
    }

    /// Links to acts.
    pub fn links(links: Vec<Link>) -> Self {
        Self { links, class: "acts", ..Self::default() }
    }
}

/// A table, with a way to its next page.
#[derive(Template, Debug, Default)]
#[template(path = "parts/table.html")]
pub(crate) struct Table {
    /// Its name in the page.
    pub id: &'static str,
    pub title: String,
    pub columns: Vec<&'static str>,
    pub rows: Vec<Vec<Cell>>,
    /// What is said when it has no rows.
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
    /// Adds one, unless its text is empty.
    #[must_use]
    pub fn with(mut self, name: &str, cell: Cell) -> Self {
        if !cell.text.is_empty() || !cell.links.is_empty() {
            self.rows.push((name.to_owned(), cell));
        }
        self
    }

    /// The fields of a document.
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

/// JSON in full.
#[derive(Template, Debug)]
#[template(path = "parts/json.html")]
pub(crate) struct Json {
    /// What keeps it open while the page around it is replaced.
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

/// A field of a form that filters.
#[derive(Debug)]
pub(crate) struct Input {
    pub name: &'static str,
    pub label: &'static str,
    pub value: String,
    pub hint: &'static str,
    /// What can be chosen; anything can be typed where it is empty.
    pub choices: &'static [&'static str],
}

impl Input {
    /// A field with the value that the address gives it.
    pub fn of(view: &View, name: &'static str, label: &'static str, hint: &'static str) -> Self {
        Self { name, label, value: view.value(name), hint, choices: &[] }
    }

    /// A field of which one of these is chosen, or none.
    pub fn choice(view: &View, name: &'static str, label: &'static str, choices: &'static [&'static str]) -> Self {
        Self { choices, ..Self::of(view, name, label, "") }
    }
}

/// A form that shows a page with other parameters.
#[derive(Template, Debug)]
#[template(path = "parts/search.html")]
pub(crate) struct Search {
    pub action: String,
    pub hidden: Vec<(String, String)>,
    pub inputs: Vec<Input>,
    pub button: &'static str,
}

/// A sentence that stands out.
#[derive(Template, Debug)]
#[template(path = "parts/notice.html")]
pub(crate) struct Notice {
    /// `good`, `warn` or `bad`.
    pub class: &'static str,
    pub title: String,
    pub text: String,
    pub link: Option<Link>,
}
