//! The web pages of a server: the contents of a store, the state of its tasks, and acts on them. It is a separate crate to keep the
//! server's build small, and so that pages can only use operations of the API ([`annals_server::Api`]).
//!
//! ```text
//!  request ─▶ session.rs ─▶ View ─▶ pages/<feature>.rs ─▶ Api::call (permission, tenant, limits, audit) ─▶ templates/<feature>.html
//!                 │
//!                 └─ act.rs: the token, a reason, what it will do ─▶ Api::call
//! ```
//!
//! A page consists of a file in `pages/`, a template, and a line in `pages.rs`. It works without scripts; [htmx] replaces the live parts.
//! docs/console.md describes the pages, and docs/decisions/0053 explains their design.
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

/// The settings of a console: what it shows of the process besides its own pages.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Settings {
    /// The configuration of the process without its secrets, as key, value and origin.
    pub configuration: Vec<(String, String, String)>,
    /// Links to pages of the serving program, as title and path.
    pub links: Vec<(String, String)>,
}

/// Returns the pages, for [`annals_server::Options::pages`].
pub fn console(settings: Settings) -> Pages {
    let settings = std::sync::Arc::new(settings);
    Pages::new(move |api| console::routes(api, std::sync::Arc::clone(&settings)))
}
