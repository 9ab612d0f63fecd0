//! Static files of the pages. They are compiled into the binary.
//!
//! `htmx.min.js` is htmx.org 2.0.11 and `sse.min.js` is htmx-ext-sse 2.2.4, as published on npm (Zero-Clause BSD). A line break is
//! appended to each; a test verifies the SHA-256 of the rest.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Name, media type and content.
const FILES: [(&str, &str, &str); 5] = [
    ("console.css", "text/css; charset=utf-8", include_str!("../assets/console.css")),
    ("console.js", SCRIPT, include_str!("../assets/console.js")),
    ("htmx.min.js", SCRIPT, include_str!("../assets/htmx.min.js")),
    ("icon.svg", "image/svg+xml", include_str!("../assets/icon.svg")),
    ("sse.min.js", SCRIPT, include_str!("../assets/sse.min.js")),
];
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Returns a file.
pub(crate) fn file(name: &str) -> Response {
    match FILES.iter().find(|(known, _, _)| *known == name) {
        Some((_, kind, content)) => {
            ([(header::CONTENT_TYPE, *kind), (header::CACHE_CONTROL, "max-age=300")], *content).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn the_scripts_of_others_are_as_they_were_published() {
        for (name, digest) in [
            ("htmx.min.js", "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717"),
            ("sse.min.js", "98a46496de0c3605fbffdce9167ba427bdd9553184f83f149c261891a92c0136"),
        ] {
            let (_, _, content) = FILES.iter().find(|(known, _, _)| *known == name).expect("it is there");
            // They end with a line break here, as every file does.
            let published = content.strip_suffix('\n').expect("a line break");
            let found: String = Sha256::digest(published).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(found, digest, "{name}");
        }
    }
}
