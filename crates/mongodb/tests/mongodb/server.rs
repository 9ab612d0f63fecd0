//! The mongod that the tests run against, and databases of their own in it.

use std::sync::atomic::{AtomicU32, Ordering};

use annals_core::DEFAULT_TENANT;
use annals_mongodb::{MongoStore, Options, Tenant};
use mongodb::Client;

/// The URL of the server, without a database.
///
/// # Panics
/// When it is not known.
pub fn url() -> String {
    std::env::var("ANNALS_TEST_MONGODB").expect(
        "these tests need a MongoDB: run them with `cargo xtask test`, or start one with `cargo xtask services` and set \
         ANNALS_TEST_MONGODB to the URL that it prints",
    )
}

/// Databases for one test, which are dropped with this value.
pub struct Databases {
    pub name: String,
}

impl Databases {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // What the store says is shown beside a failure.
        let _ = tracing_subscriber::fmt().with_test_writer().with_max_level(tracing_subscriber::filter::LevelFilter::INFO).try_init();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self { name: format!("annals_test_{}_{count}", std::process::id()) }
    }

    /// The URL with the database in it.
    pub fn url(&self) -> String {
        let url = url();
        let (place, query) = url.split_once('?').unwrap_or((&url, ""));
        format!("{}/{}?{query}", place.trim_end_matches('/'), self.name)
    }

    /// The name of a second database, dropped as well.
    pub fn other(&self) -> String {
        format!("{}_other", self.name)
    }

    pub async fn client(&self) -> Client {
        Client::with_uri_str(url()).await.expect("the server is there")
    }

    pub async fn database(&self) -> mongodb::Database {
        self.client().await.database(&self.name)
    }

    pub async fn store(&self, options: Options) -> MongoStore {
        MongoStore::open(&self.url(), options).await.expect("the store opens")
    }
}

impl Drop for Databases {
    fn drop(&mut self) {
        let names = [self.name.clone(), self.other()];
        // On a thread of its own: a test's runtime may be around this one.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let client = Client::with_uri_str(url()).await.expect("the server is there");
                for name in names {
                    let _ = client.database(&name).drop().await;
                }
            });
        });
        let _ = dropping.join();
    }
}

/// Options with the tenants `default` and `other`.
pub fn two_tenants() -> Options {
    Options { tenants: vec![Tenant::new(DEFAULT_TENANT), Tenant::new("other")], ..Options::default() }
}
