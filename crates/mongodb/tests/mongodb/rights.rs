//! A server that lets nobody do anything without a right to it: what docs/mongodb.md asks for is enough, and what is missing is said when
//! the store is opened.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use annals_core::bson::rawdoc;
use annals_core::{
    Code, Collection, DEFAULT_SCOPE, DEFAULT_TENANT, Included, Index, OpenError, RecordChange, Store, Verdicts,
};
use annals_mongodb::adopt::{adopt, inspect};
use annals_mongodb::{MongoStore, Options};
use mongodb::Client;
use mongodb::bson::{Bson, Document, doc};

use crate::adopting::{PAID, PLACED, names, v9};
use crate::server::{log_of, order, until};
use crate::servers::Member;

/// A replica set of one that asks for a password, and its file that says so.
struct Guarded {
    member: Member,
    key: PathBuf,
    root: Client,
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.key);
    }
}

impl Guarded {
    async fn start() -> Self {
        let key = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("key-{}", std::process::id()));
        std::fs::write(&key, "aKeyThatTheMembersShare1").expect("written");
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("kept to oneself");
        let file = key.to_str().expect("a path").to_owned();
        let member = Member::start(&["--replSet", "rs0", "--auth", "--keyFile", &file]);
        // Until there is a user, whoever is on the same machine may begin.
        let admin = member.admin().await;
        let members = [doc! { "_id": 0, "host": member.address() }];
        let initiate = doc! { "replSetInitiate": { "_id": "rs0", "members": members } };
        until("a member that can be initiated", async || admin.run_command(initiate.clone()).await.is_ok()).await;
        until("a primary", async || {
            let hello = admin.run_command(doc! { "hello": 1 }).await;
            hello.is_ok_and(|hello| hello.get_bool("isWritablePrimary").unwrap_or(false))
        })
        .await;
        let create = doc! { "createUser": "root", "pwd": "s3cr3t", "roles": ["root"] };
        admin.run_command(create).await.expect("the first user");
        let url = format!("mongodb://root:s3cr3t@{}/admin?directConnection=true", member.address());
        let root = Client::with_uri_str(url).await.expect("a URL");
        Self { member, key, root }
    }

    /// A new user with these roles, and the URL with which it opens the store in this database.
    async fn url(&self, user: &str, roles: Vec<Bson>, database: &str) -> String {
        let create = doc! { "createUser": user, "pwd": "s3cr3t", "roles": roles };
        self.root.database("admin").run_command(create).await.expect("the user is made");
        self.url_of(user, database)
    }

    fn url_of(&self, user: &str, database: &str) -> String {
        let place = self.member.address();
        format!("mongodb://{user}:s3cr3t@{place}/{database}?replicaSet=rs0&authSource=admin")
    }
}

fn role(role: &str, database: &str) -> Bson {
    doc! { "role": role, "db": database }.into()
}

async fn refused(url: &str) -> OpenError {
    let error = MongoStore::open(url, Options::default()).await.err().expect("it is refused");
    assert!(!error.message.contains("s3cr3t"), "{}", error.message);
    error
}

/// Everything that a store does.
async fn works(url: &str) {
    let (first, second) = tokio::join!(MongoStore::open(url, scoped()), MongoStore::open(url, scoped()));
    let (first, second) = (first.expect("it opens"), second.expect("it opens"));
    for n in 0..3 {
        for store in [&first, &second] {
            log_of(store).commit(order("a", n)).await.expect("committed and numbered");
        }
    }
    let streams = first.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("declared");
    let run = Verdicts::new("s", 0..6).include(Included::new(0)).include(Included::of(3, "p"));
    streams.append(run).await.expect("appended");
    let records = first.records(DEFAULT_TENANT).expect("declared");
    let expiring = Index::on("at").expires_after_seconds(3600);
    records.declare(Collection::new("things").index(expiring)).await.expect("declared");
    let change = RecordChange::Insert { collection: "things".to_owned(), document: rawdoc! { "_id": 1 } };
    records.write(vec![change]).await.expect("written");
    let scope = first.log(DEFAULT_TENANT, "inbox").expect("declared");
    assert_eq!(scope.head().await, Ok(0));
    // Whichever leads gives it up, and the other goes on.
    first.close().await;
    log_of(&second).commit(order("a", 9)).await.expect("committed and numbered");
    second.close().await;
}

fn scoped() -> Options {
    Options { scopes: vec!["inbox".to_owned()], ..Options::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_of_the_documentation_are_enough_and_missing_ones_are_named() {
    let server = Guarded::start().await;
    let due = |database: &str| vec![role("readWrite", database), role("readAnyDatabase", "admin")];
    works(&server.url("annals", due("shop"), "shop").await).await;

    // A role of one's own in the place of reading everything.
    let all = doc! { "db": "", "collection": "" };
    let follow = doc! { "createRole": "follow", "roles": [], "privileges": [
        { "resource": all, "actions": ["find", "changeStream"] },
    ] };
    server.root.database("admin").run_command(follow).await.expect("the role is made");
    let own = vec![role("readWrite", "own"), role("follow", "admin")];
    works(&server.url("follower", own, "own").await).await;

    // A database of a Runtime is adopted with the same rights.
    let events = server.root.database("runtime").collection::<Document>("event-log");
    events.insert_many([v9(0, PLACED, "o-1", Some(0)), v9(1, PAID, "o-1", Some(1))]).await.expect("inserted");
    let url = server.url("adopter", due("runtime"), "runtime").await;
    let options = Options::default();
    let report = inspect(&url, DEFAULT_TENANT, &options, &names(), &mut |_, _| {}).await.expect("it looks");
    assert!(report.obstacles.is_empty(), "{:?}", report.obstacles);
    adopt(&url, DEFAULT_TENANT, &options, &names(), &mut |_, _| {}).await.expect("adopted");

    // What is missing.
    let lacks = async |user: &str, roles: Vec<Bson>, database: &str| {
        let error = refused(&server.url(user, roles, database).await).await;
        assert_eq!(error.code, Code::UnsuitableServer, "{user}: {}", error.message);
        assert!(error.message.contains("readWrite") && error.message.contains("readAnyDatabase"), "{}", error.message);
        error.message
    };
    lacks("unfollowing", vec![role("readWrite", "a")], "a").await;
    let reading = lacks("reading", vec![role("readAnyDatabase", "admin")], "b").await;
    assert!(reading.contains("b"), "{reading}");
    lacks("elsewhere", due("c"), "d").await;
    lacks("nobody", Vec::new(), "e").await;
    let names = server.root.list_database_names().await.expect("listed");
    assert!(["a", "b", "d", "e"].iter().all(|name| !names.iter().any(|there| there == name)), "{names:?}");

    let wrong = server.url_of("annals", "shop").replace("s3cr3t", "guessed");
    let error = refused(&wrong).await;
    assert!(error.code == Code::UnsuitableServer && error.message.contains("user and password"), "{}", error.message);
    let without = format!("mongodb://{}/shop?replicaSet=rs0", server.member.address());
    let error = refused(&without).await;
    assert_eq!(error.code, Code::UnsuitableServer, "{}", error.message);
}
