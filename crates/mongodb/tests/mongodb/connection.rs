//! What is in the way of a store is said when it is opened, with what to do.

use annals_core::{Code, OpenError, Store};
use annals_mongodb::{MongoStore, Options, Tenant};

use crate::server::{Databases, url};

async fn refused(url: &str, options: Options) -> OpenError {
    MongoStore::open(url, options).await.err().expect("it is refused")
}

#[tokio::test]
async fn a_url_without_a_database_is_refused() {
    let error = refused(&url(), Options::default()).await;
    assert_eq!(error.code, Code::InvalidConfig);
    assert!(error.message.contains("last slash"), "{}", error.message);
}

#[tokio::test]
async fn a_weaker_write_concern_is_refused() {
    let databases = Databases::new();
    let error = refused(&format!("{}&w=1", databases.url()), Options::default()).await;
    assert_eq!(error.code, Code::InvalidConfig);
    assert!(error.message.contains("w=majority"), "{}", error.message);
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_named_without_the_password() {
    let url = "mongodb://eva:s3cr3t@127.0.0.1:1/shop?serverSelectionTimeoutMS=300";
    let error = refused(url, Options::default()).await;
    assert_eq!(error.code, Code::Unreachable);
    assert!(error.message.contains("127.0.0.1:1") && !error.message.contains("s3cr3t"), "{}", error.message);
}

#[tokio::test]
async fn a_store_that_must_exist_is_not_made() {
    let databases = Databases::new();
    let error = refused(&databases.url(), Options { must_exist: true, ..Options::default() }).await;
    assert_eq!(error.code, Code::NotAStore);
    let names = databases.database().await.list_collection_names().await.expect("listed");
    assert_eq!(names, Vec::<String>::new());
    databases.store(Options::default()).await.close().await;
    databases.store(Options { must_exist: true, ..Options::default() }).await.close().await;
}

#[tokio::test]
async fn two_processes_may_begin_on_an_empty_database_at_once() {
    let databases = Databases::new();
    let (first, second) = tokio::join!(databases.store(Options::default()), databases.store(Options::default()));
    assert_eq!(first.identity("default"), second.identity("default"));
    assert!(first.identity("default").is_some());
    tokio::join!(first.close(), second.close());
}

#[tokio::test]
async fn tenants_never_share_a_database() {
    let databases = Databases::new();
    let mut same = Tenant::new("other");
    same.snapshot_database = Some(databases.name.clone());
    let options = Options { tenants: vec![Tenant::new("default"), same], ..Options::default() };
    let error = refused(&databases.url(), options).await;
    assert_eq!(error.code, Code::InvalidConfig);
    assert!(error.message.contains("share database"), "{}", error.message);
}
