//! What a person without a mouse does on any page of the console.

use serde_json::json;

use crate::browser::{Browser, ENTER, SHIFT, TAB};
use crate::running::Running;

/// Most keys that lead to anything on a page.
const KEYS_MAX: usize = 400;

/// A field of the form of an act, as an expression of the browser.
pub fn field(name: &str) -> String {
    format!("document.querySelector('.act-form [name=\"{name}\"]:not([type=hidden])')")
}

impl Browser {
    /// Signs in as an administrator.
    pub async fn sign_in(&self, server: &Running) {
        self.go(server, "/console/sign-in").await;
        self.until("document.activeElement.name === 'credential'").await;
        self.press(&server.admin).await;
        self.press(ENTER).await;
        self.until("document.querySelector('h1')?.textContent === 'Overview'").await;
    }

    /// Moves the focus to an element, with Tab and Shift only. What a field has is selected then, so that typing replaces it.
    pub async fn move_to(&self, element: &str) {
        let script = format!(
            "const there = {element}, here = document.activeElement;
             if (!there) return 'nowhere';
             if (here === there) return 'here';
             return here.compareDocumentPosition(there) & Node.DOCUMENT_POSITION_FOLLOWING ? 'after' : 'before';"
        );
        for _ in 0..KEYS_MAX {
            let place = self.evaluate(&script).await;
            match place.as_str() {
                Some("here") => return,
                Some("after") => self.press(TAB).await,
                Some("before") => self.press_with(SHIFT, TAB).await,
                // A live page is replaced now and then.
                _ => {}
            }
        }
        panic!("no key leads to {element}: {}", self.source().await);
    }

    /// Follows the first link that a selector finds and that has the title of an act, and waits for the form of the act.
    pub async fn choose(&self, selector: &str, act: &str) {
        let links = format!("[...document.querySelectorAll({})]", json!(selector));
        let link = format!("{links}.find(link => link.textContent === {})", json!(act));
        self.until(&link).await;
        self.move_to(&link).await;
        self.press(ENTER).await;
        self.until("document.activeElement.name === 'reason'").await;
    }

    /// Types into a field of the form of an act, and returns to the reason.
    pub async fn fill_in(&self, name: &str, value: &str) {
        self.move_to(&field(name)).await;
        self.press(value).await;
        self.move_to(&field("reason")).await;
    }

    /// Gives a reason, carries the act out and waits until it is done.
    pub async fn because(&self, reason: &str) {
        self.press(reason).await;
        self.move_to("document.querySelector('button.danger')").await;
        self.press(ENTER).await;
        self.until("document.querySelector('.notice.good')").await;
    }

    /// Fails if stored text became an element of the page, or ran.
    pub async fn shows_only_text(&self, at: &str) {
        assert_ne!(self.title().await, "hacked", "{at}");
        let elements = self.evaluate("return document.querySelectorAll('script:not([src]), main img').length").await;
        assert_eq!(elements, json!(0), "{at}");
    }
}
