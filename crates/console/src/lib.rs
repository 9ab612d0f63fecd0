//! The web pages of a server: what a store holds, how its tasks are doing, and acts on them. This is a crate so that the server's build
//! stays small, and so that pages can reach nothing but the operations of the API ([`annals_server::Api`]).
//!
//! ```text
//!  request ─▶ session.rs ─▶ View ─▶ pages/<feature>.rs ─▶ Api::call (permission, tenant, limits, audit) ─▶ templates/<feature>.html
//!                 │
//!                 └─ act.rs: the token, a reason, what it will do ─▶ Api::call
//! ```
//!
//! A page is one file in `pages/` and one template, and one line in `pages.rs`. It works without scripts; [htmx] replaces the parts that
//! are live. docs/console.md describes the pages, docs/decisions/0053 why they are made this way.
//!
//! [htmx]: https://htmx.org

mod act;
mod assets;
mod components;
mod console;
mod diagram;
mod examined;
mod forms;
mod live;
mod page;
mod pages;
mod samples;
mod session;
mod values;
mod view;

use annals_server::Pages;

pub use page::{ActListed, PageListed, listing};

/// What a console shows beside its own pages.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Settings {
    /// The configuration of the process, without its secrets, as key, value and origin.
    pub configuration: Vec<(String, String, String)>,
    /// Pages of the program that serves, as title and path.
    pub links: Vec<(String, String)>,
}

/// The pages for [`annals_server::Options::pages`].
pub fn console(settings: Settings) -> Pages {
    let settings = std::sync::Arc::new(settings);
    Pages::new(move |api| console::routes(api, std::sync::Arc::clone(&settings)))
}
