//! `GET /errors/{code}`: the page of an error code, to which the `type` of every problem document links.
//!
//! The pages are part of the build, so a server has a page for every code that it returns.

use std::fmt::Write;

use annals_core::Code;
use axum::extract::Path;
use axum::http::{HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};

use crate::payload::Payload;
use crate::problem::Problem;
use crate::route::{Feature, Permission, get};

/// The path of the pages, to which the code is appended.
pub(crate) const PAGES: &str = "/errors/";
const HTML: &str = "text/html; charset=utf-8";
/// The pages are plain text and load nothing.
const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Returns the operations that serve the error pages.
pub(crate) fn feature() -> Feature {
    Feature::new(
        "Errors",
        [
            get("/errors", Permission::Open, list).described(
                "listErrors",
                "Lists every error code.",
                Payload::raw(HTML, "a page with a link for each code"),
            ),
            get("/errors/{code}", Permission::Open, one)
                .described(
                    "getError",
                    "Explains an error code and what to do about it.",
                    Payload::raw(HTML, "the page of the code"),
                )
                .refuses(&[Code::UnknownRoute]),
        ],
    )
}

/// `GET /errors`.
async fn list() -> Response {
    let mut body = String::from("<h1>Errors</h1>\n<p>Every error has a stable code.</p>\n<dl>\n");
    for code in Code::ALL {
        let (name, meaning) = (code.as_str(), escaped(code.meaning()));
        // Writing to a string cannot fail.
        let _ = writeln!(body, "<dt><a href=\"{PAGES}{name}\"><code>{name}</code></a></dt><dd>{meaning}</dd>");
    }
    body.push_str("</dl>\n");
    page("Errors", &body)
}

/// `GET /errors/{code}`.
async fn one(Path(name): Path<String>) -> Result<Response, Problem> {
    let code = Code::ALL.iter().find(|code| code.as_str() == name);
    let unknown = || Problem::new(Code::UnknownRoute, format!("{name:?} is not an error code; GET /errors lists them"));
    let code = code.ok_or_else(unknown)?;
    let (status, exit) = (code.status(), code.exit());
    let (meaning, advice) = (escaped(code.meaning()), escaped(code.advice()));
    let body = format!(
        "<h1><code>{name}</code></h1>\n<p>{meaning}</p>\n<h2>What to do</h2>\n<p>{advice}</p>\n\
         <h2>Where it is returned</h2>\n<p>HTTP status {status}; exit code {exit} of the command line; \
         <code>Code</code> in the library.</p>\n<p><a href=\"/errors\">All errors</a></p>\n"
    );
    Ok(page(&name, &body))
}

fn page(title: &str, body: &str) -> Response {
    let head = "<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
                <meta name=\"color-scheme\" content=\"light dark\">";
    let text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n{head}\n<title>{title} – Annals</title>\n</head>\n\
         <body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    );
    let mut response = Html(text).into_response();
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
