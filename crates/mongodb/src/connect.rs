//! Connects to a URL with the options that the store's guarantees require, or explains what is wrong.

use std::sync::Arc;
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::error::ErrorKind;
use mongodb::options::{
    Acknowledgment, ClientOptions, ReadConcern, ReadPreference, SelectionCriteria, ServerAddress, WriteConcern,
};

use crate::hosts::{self, NOT_INITIATED, standalone};
use crate::options::ConnectionOptions;
use crate::primary::Primary;
use crate::refused::{Code, OpenError, asking};

/// The oldest version with all features that are used.
const VERSION_MIN: (i32, i32) = (6, 0);
/// Maximum interval between two heartbeats of a server, unless the URL sets it. A single response that says "shutting down" takes a server
/// out of use until its next heartbeat, even if it continues. The driver's default of ten seconds is longer than a lease, and as long as a
/// read waits.
const HEARTBEAT_TIME: Duration = Duration::from_secs(2);

/// A connection and what its URL named.
pub(crate) struct Connection {
    pub(crate) client: Client,
    /// The database in the URL's path.
    pub(crate) database: Option<String>,
    /// Tracks whether there is a primary.
    pub(crate) primary: Arc<Primary>,
}

/// Maximum number of connections that are established at the same time. The driver waits for a handshake without a limit, so its default
/// of 2 is exhausted permanently by a network that loses two responses.
const CONNECTING_MAX: u32 = 32;

/// Connects, and checks that the server can hold a store.
///
/// INVARIANT: whatever the URL says, everything is read from the primary at majority, and written at majority and journaled: reads for
/// decisions must not be stale, and acknowledged writes must be durable. A URL that requests less is refused, so that nobody relies on it.
///
/// # Errors
/// `invalid_config` for the URL, `unsuitable_server` if the server cannot hold a store, `unreachable`.
pub(crate) async fn connect(url: &str, wanted: &ConnectionOptions) -> Result<Connection, OpenError> {
    let invalid = |message: String| OpenError::new(Code::InvalidConfig, message);
    let mut options = ClientOptions::parse(url).await.map_err(|error| {
        // The driver's message may quote the part of the URL that it cannot parse, and must not reveal the password.
        invalid(format!("the MongoDB URL cannot be read: {}", without_secrets(&error.kind.to_string(), url)))
    })?;
    check_write_concern(options.write_concern.as_ref()).map_err(invalid)?;
    let database = options.default_database.clone();
    let place = place(&options);
    options.app_name.get_or_insert_with(|| "annals".to_owned());
    check_pool(wanted).map_err(invalid)?;
    options.max_pool_size.get_or_insert(wanted.pool_size_max);
    options.min_pool_size.get_or_insert(wanted.pool_size_min);
    options.server_selection_timeout.get_or_insert(wanted.selection_time);
    options.connect_timeout.get_or_insert(wanted.connect_time);
    options.max_connecting.get_or_insert(CONNECTING_MAX);
    options.heartbeat_freq.get_or_insert(HEARTBEAT_TIME);
    let primary = Arc::new(Primary::default());
    options.sdam_event_handler = Some(Primary::handler(&primary));
    options.read_concern = Some(ReadConcern::majority());
    options.write_concern = Some(strict());
    options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
    let client = Client::with_options(options.clone()).map_err(|error| invalid(format!("{place}: {}", error.kind)))?;
    let admin = client.database("admin");
    let hello = tokio::select! {
        hello = admin.run_command(doc! { "hello": 1 }) => hello,
        mistaken = hosts::mistaken(&place, &options) => return Err(mistaken),
    };
    let hello = match hello {
        Ok(hello) => hello,
        Err(error) if matches!(&*error.kind, ErrorKind::ServerSelection { .. }) => {
            return Err(hosts::without_primary(&place, &options).await);
        }
        Err(error) => return Err(asking(&place, &error)),
    };
    check_topology(&hello)
        .map_err(|sentence| OpenError::new(Code::UnsuitableServer, format!("{place}: {sentence}")))?;
    let build = admin.run_command(doc! { "buildInfo": 1 }).await.map_err(|error| asking(&place, &error))?;
    check_version(&build).map_err(|sentence| OpenError::new(Code::UnsuitableServer, format!("{place}: {sentence}")))?;
    Ok(Connection { client, database, primary })
}

fn check_pool(wanted: &ConnectionOptions) -> Result<(), String> {
    let ConnectionOptions { pool_size_max, pool_size_min, selection_time, connect_time } = wanted;
    if *pool_size_max == 0 || pool_size_min > pool_size_max {
        return Err(format!(
            "the pool is to have {pool_size_min} to {pool_size_max} connections; allow at least one, and no more at least than at most"
        ));
    }
    if selection_time.is_zero() || connect_time.is_zero() {
        return Err("looking for a primary and connecting must be given some time; name more than 0 ms".to_owned());
    }
    Ok(())
}

/// Checks that the user may open a change stream over all databases. Without it, commits would be stored and never numbered.
///
/// # Errors
/// `unsuitable_server`, naming the required rights; `unreachable`.
pub(crate) async fn check_following(client: &Client) -> Result<(), OpenError> {
    client.watch().await.map(|_| ()).map_err(|error| asking("the change stream over all databases", &error))
}

/// Returns the write concern of the store: majority and journaled, without a timeout after which a write that may still succeed counts as
/// failed.
pub(crate) fn strict() -> WriteConcern {
    let mut concern = WriteConcern::majority();
    concern.journal = Some(true);
    concern
}

/// Returns the addresses of the URL, without user and password.
fn place(options: &ClientOptions) -> String {
    let host = |address: &ServerAddress| address.to_string();
    format!("mongodb://{}", options.hosts.iter().map(host).collect::<Vec<_>>().join(","))
}

fn without_secrets(message: &str, url: &str) -> String {
    let user = url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@')).map(|(user, _)| user);
    let secrets = user.into_iter().flat_map(|user| [Some(user), user.split_once(':').map(|(_, password)| password)]);
    let mut shown = message.to_owned();
    for secret in secrets.flatten().filter(|secret| !secret.is_empty()) {
        shown = shown.replace(secret, "***");
    }
    shown
}

fn check_write_concern(concern: Option<&WriteConcern>) -> Result<(), String> {
    let Some(concern) = concern else { return Ok(()) };
    let weak = match &concern.w {
        None | Some(Acknowledgment::Majority) => concern.journal == Some(false),
        Some(_) => true,
    };
    if weak {
        return Err("the MongoDB URL asks for a weaker write concern than a store can keep its promises with; \
                    leave w and journal out, or write w=majority&journal=true"
            .to_owned());
    }
    Ok(())
}

fn check_topology(hello: &Document) -> Result<(), String> {
    let is_mongos = hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid");
    if hello.contains_key("setName") || is_mongos {
        return Ok(());
    }
    let is_ghost = hello.get_bool("isreplicaset").unwrap_or(false);
    Err(if is_ghost { format!("it {NOT_INITIATED}") } else { format!("it {}", standalone(None)) })
}

fn check_version(build: &Document) -> Result<(), String> {
    let part = |place: usize| build.get_array("versionArray").ok()?.get(place)?.as_i32();
    let version = (part(0).unwrap_or(0), part(1).unwrap_or(0));
    if version >= VERSION_MIN {
        return Ok(());
    }
    let (major, minor) = VERSION_MIN;
    let found = build.get_str("version").unwrap_or("unknown");
    Err(format!("the server's version is {found}; use MongoDB {major}.{minor} or later"))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn concern(query: &str) -> Result<(), String> {
        let options = ClientOptions::parse(format!("mongodb://localhost/x?{query}")).await.expect("a URL");
        check_write_concern(options.write_concern.as_ref())
    }

    #[tokio::test]
    async fn a_weaker_write_concern_is_refused() {
        for good in ["", "w=majority", "journal=true", "w=majority&journal=true&wtimeoutMS=5000"] {
            assert_eq!(concern(good).await, Ok(()), "{good}");
        }
        for weak in ["w=1", "w=2", "journal=false", "w=majority&journal=false", "w=tag"] {
            let message = concern(weak).await.expect_err(weak);
            assert!(message.contains("w=majority"), "{message}");
        }
    }

    #[test]
    fn a_standalone_and_an_old_server_are_refused_with_what_to_do() {
        assert!(check_topology(&doc! { "isWritablePrimary": true }).expect_err("standalone").contains("--replSet"));
        assert!(check_topology(&doc! { "isreplicaset": true }).expect_err("not initiated").contains("rs.initiate()"));
        assert_eq!(check_topology(&doc! { "setName": "rs0" }), Ok(()));
        assert_eq!(check_topology(&doc! { "msg": "isdbgrid" }), Ok(()));
        let version = |array: [i32; 4]| check_version(&doc! { "version": "x", "versionArray": array.to_vec() });
        assert!(version([5, 0, 31, 0]).expect_err("old").contains("6.0"));
        assert_eq!(version([6, 0, 5, 0]), Ok(()));
        assert_eq!(version([10, 0, 0, 0]), Ok(()));
    }

    #[tokio::test]
    async fn a_password_is_never_shown() {
        for url in [
            "mongodb://eva:s3cr3t@/x",
            "mongodb://eva:s3cr3t@localhost:notaport/x",
            "mongodb://eva:s3:cr3t@localhost/x",
            "mongodb://eva:s3cr3t@localhost/x?authMechanism=NOPE",
        ] {
            if let Err(error) = connect(url, &ConnectionOptions::default()).await {
                assert!(!error.message.contains("cr3t"), "{}", error.message);
            }
        }
    }
}
