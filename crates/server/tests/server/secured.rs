//! A server with credentials, for tests.

use std::sync::Arc;

use annals_core::credentials::{Credentials, EVERY, Grant, NewCredential, Role};
use annals_core::{Clock, Store};
use annals_embedded::disk::MemoryDisk;
use annals_runtime::StoredCredentials;
use annals_server::{Options, Security};
use annals_system::SystemClock;
use reqwest::{Method, RequestBuilder};

use crate::running::{Answer, Running, store_on};

/// A store with these tenants and the system tenant.
pub fn store(tenants: &[&str]) -> Arc<dyn Store> {
    let tenants = tenants.iter().chain(&["system"]).map(|tenant| (*tenant).to_owned()).collect();
    let options = annals_embedded::Options { tenants, ..annals_embedded::Options::default() };
    store_on(Arc::new(MemoryDisk::default()), options)
}

/// Options with the default security.
pub fn options() -> Options {
    let mut options = Options::default();
    options.security = Some(Security::default());
    options
}

/// A running server that asks for credentials, and the key of an administrator.
pub struct Secured {
    pub server: Running,
    pub admin: String,
}

impl Secured {
    /// Starts a server with these tenants.
    pub async fn start(tenants: &[&str]) -> Self {
        Self::over(store(tenants), options()).await
    }

    /// Starts a server on a store that has the system tenant.
    pub async fn over(store: Arc<dyn Store>, options: Options) -> Self {
        let admin = key_in(&*store, Grant::new(Role::Admin, [EVERY])).await;
        Self { server: Running::over(store, options).await, admin }
    }

    pub fn request(&self, key: &str, method: Method, path: &str) -> RequestBuilder {
        self.server.request(method, path).header("authorization", format!("Bearer {key}"))
    }

    pub async fn send(&self, request: RequestBuilder) -> Answer {
        self.server.send(request).await
    }

    pub async fn get(&self, key: &str, path: &str) -> Answer {
        self.send(self.request(key, Method::GET, path)).await
    }

    /// A key with this grant, created over HTTP: its id and the key.
    pub async fn create(&self, grant: Grant) -> (String, String) {
        let body = serde_json::to_string(&NewCredential::new("of a test", grant)).expect("JSON");
        let answer = self.send(self.request(&self.admin, Method::POST, "/v1/credentials").body(body)).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        let created = answer.json();
        let text = |name: &str| created[name].as_str().expect(name).to_owned();
        (text("id"), text("key"))
    }
}

/// Creates a key where the store is, as `annals credential create` does.
pub async fn key_in(store: &dyn Store, grant: Grant) -> String {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let credentials = StoredCredentials::new(store, "system", clock).expect("the tenant is declared");
    credentials.create(NewCredential::new("admin", grant)).await.expect("created").key
}
