//! What a person does on any page of the console.

use serde_json::json;

use crate::browser::{Browser, ENTER};
use crate::running::Running;

impl Browser {
    /// Signs in as an administrator.
    pub async fn sign_in(&self, server: &Running) {
        self.go(server, "/console/sign-in").await;
        self.until("document.activeElement.name === 'credential'").await;
        self.press(&server.admin).await;
        self.press(ENTER).await;
        self.until("document.querySelector('h1')?.textContent === 'Overview'").await;
    }

    /// Follows the first link that a selector finds and that has the title of an act, and waits for the form of the act.
    pub async fn choose(&self, selector: &str, act: &str) {
        let links = format!("[...document.querySelectorAll({})]", json!(selector));
        let link = format!("{links}.find(link => link.textContent === {})", json!(act));
        self.until(&link).await;
        self.evaluate(&format!("{link}.click()")).await;
        self.until("document.activeElement.name === 'reason'").await;
    }

    /// Types into a field of the form of an act.
    pub async fn fill_in(&self, name: &str, value: &str) {
        let field = format!("document.querySelector('.act-form [name=\"{name}\"]')");
        self.evaluate(&format!("{field}.value = {}", json!(value))).await;
    }

    /// Gives a reason, carries the act out and waits until it is done.
    pub async fn because(&self, reason: &str) {
        self.press(reason).await;
        self.evaluate("document.querySelector('button.danger').click()").await;
        self.until("document.querySelector('.notice.good')").await;
    }

    /// Fails if stored text became an element of the page, or ran.
    pub async fn shows_only_text(&self, at: &str) {
        assert_ne!(self.title().await, "hacked", "{at}");
        let elements = self.evaluate("return document.querySelectorAll('script:not([src]), main img').length").await;
        assert_eq!(elements, json!(0), "{at}");
    }
}
