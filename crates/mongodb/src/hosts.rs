//! Explains why no primary is found, by asking each server in the URL. The driver silently ignores servers of a replica set other than the
//! URL's, and standalone servers as well.

use std::sync::Arc;
use std::time::Duration;

use annals_system::sleep;
use futures_util::future::join_all;
use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::error::ErrorKind;
use mongodb::options::{ClientOptions, ReadPreference, SelectionCriteria, ServerAddress};

use crate::primary::Primary;
use crate::refused::{Code, OpenError, message_of};

/// How long the driver looks for a primary before the servers are asked: by then a healthy cluster has responded.
const ASKED_AFTER: Duration = Duration::from_secs(2);
/// Timeout for a server's response.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(3);

/// What a server reports about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    Standalone,
    NotInitiated,
    Mongos,
    Member { set: String, primary: Option<String> },
    Silent(String),
}

/// Returns an error once the servers' responses show that the URL cannot work; otherwise never returns.
pub(crate) async fn mistaken(place: &str, url: &ClientOptions) -> OpenError {
    sleep(ASKED_AFTER).await;
    let wanted = url.repl_set_name.as_deref();
    let told = ask(url).await;
    match mistake(wanted, &told) {
        Some(code) => OpenError::new(code, format!("{place}: {}", sentences(wanted, &told))),
        None => std::future::pending().await,
    }
}

/// Returns the error that explains why no primary was found.
pub(crate) async fn without_primary(place: &str, url: &ClientOptions) -> OpenError {
    let wanted = url.repl_set_name.as_deref();
    let told = ask(url).await;
    let message = format!("{place}: no primary answers: {}", sentences(wanted, &told));
    OpenError::new(mistake(wanted, &told).unwrap_or(Code::Unreachable), message)
}

async fn ask(url: &ClientOptions) -> Vec<(String, Told)> {
    let asking = url.hosts.iter().map(|host| async {
        let heard = Arc::new(Primary::default());
        let hello = tokio::time::timeout(ANSWER_TIME_MAX, hello(host, url, &heard)).await;
        let silent = || heard.silence().unwrap_or_else(|| "it does not answer".to_owned());
        let told = match hello {
            Ok(Ok(hello)) => told(&hello),
            // The driver's message contains the whole topology; the failed heartbeat says why this server is silent.
            Ok(Err(error)) if matches!(&*error.kind, ErrorKind::ServerSelection { .. }) => Told::Silent(silent()),
            Ok(Err(error)) => Told::Silent(message_of(&error)),
            Err(_) => Told::Silent(silent()),
        };
        (host.to_string(), told)
    });
    join_all(asking).await
}

/// Asks a server for `hello`, without credentials, which the command does not need.
async fn hello(host: &ServerAddress, url: &ClientOptions, heard: &Arc<Primary>) -> mongodb::error::Result<Document> {
    let nearest = SelectionCriteria::ReadPreference(ReadPreference::Nearest { options: None });
    let mut options = ClientOptions::builder().hosts(vec![host.clone()]).direct_connection(true).build();
    options.tls = url.tls.clone();
    options.connect_timeout = Some(ANSWER_TIME_MAX);
    options.server_selection_timeout = Some(ANSWER_TIME_MAX);
    options.selection_criteria = Some(nearest);
    options.sdam_event_handler = Some(Primary::handler(heard));
    Client::with_options(options)?.database("admin").run_command(doc! { "hello": 1 }).await
}

fn told(hello: &Document) -> Told {
    let flag = |key: &str| hello.get_bool(key).unwrap_or(false);
    match hello.get_str("setName") {
        Ok(set) => {
            let primary = hello.get_str("primary").ok().map(str::to_owned);
            Told::Member { set: set.to_owned(), primary }
        }
        Err(_) if hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid") => Told::Mongos,
        Err(_) if flag("isreplicaset") => Told::NotInitiated,
        Err(_) => Told::Standalone,
    }
}

/// Returns the error code of a permanent mistake: no server belongs to the requested set, and at least one says that it never will.
fn mistake(wanted: Option<&str>, told: &[(String, Told)]) -> Option<Code> {
    let right = |told: &Told| match told {
        Told::Member { set, .. } => wanted.is_none_or(|wanted| wanted == set),
        Told::Mongos => wanted.is_none(),
        _ => false,
    };
    if told.iter().any(|(_, told)| right(told)) {
        return None;
    }
    told.iter().find_map(|(_, told)| match told {
        Told::Standalone => Some(Code::UnsuitableServer),
        Told::Member { .. } | Told::Mongos => Some(Code::InvalidConfig),
        Told::NotInitiated | Told::Silent(_) => None,
    })
}

fn sentences(wanted: Option<&str>, told: &[(String, Told)]) -> String {
    told.iter().map(|(host, told)| format!("{host} {}", sentence(wanted, told))).collect::<Vec<_>>().join("; ")
}

fn sentence(wanted: Option<&str>, told: &Told) -> String {
    match told {
        Told::Standalone => standalone(wanted),
        Told::NotInitiated => NOT_INITIATED.to_owned(),
        Told::Mongos if wanted.is_some() => {
            "is a mongos of a sharded cluster: leave replicaSet out of the URL".to_owned()
        }
        Told::Mongos => "is a mongos of a sharded cluster".to_owned(),
        Told::Member { set, .. } if wanted.is_some_and(|wanted| wanted != set) => {
            let wanted = wanted.unwrap_or_default();
            format!("is of the replica set {set:?}, and the URL says {wanted:?}: write replicaSet={set} in the URL")
        }
        Told::Member { set, primary: Some(primary) } => {
            format!("is of the replica set {set:?}, whose primary is {primary}: that name must be reachable from here")
        }
        Told::Member { set, primary: None } => format!("is of the replica set {set:?}, which has no primary now"),
        Told::Silent(why) => format!("does not answer ({why})"),
    }
}

/// Returns the advice about a standalone server.
pub(crate) fn standalone(wanted: Option<&str>) -> String {
    let set = wanted.unwrap_or("rs0");
    format!(
        "is a standalone server, which has neither transactions nor change streams: start mongod with --replSet {set}, run \
         rs.initiate() once, and write replicaSet={set} in the URL (one member is enough)"
    )
}

/// The advice about a server whose replica set is not initiated.
pub(crate) const NOT_INITIATED: &str =
    "was started as a member of a replica set that is not initiated yet: run rs.initiate() there once";

#[cfg(test)]
mod tests {
    use super::*;

    fn one(hello: Document) -> Vec<(String, Told)> {
        vec![("a:1".to_owned(), told(&hello))]
    }

    #[tokio::test]
    async fn a_stopped_server_is_told_in_one_sentence() {
        // Nothing listens on a port that was free a moment ago.
        let free =
            std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
        let url = ClientOptions::parse(format!("mongodb://{free}/x?replicaSet=rs0")).await.expect("a URL");
        let error = without_primary("mongodb://x", &url).await;
        assert_eq!(error.code, Code::Unreachable);
        let due = format!(
            "mongodb://x: no primary answers: {free} does not answer (the connection failed: Connection refused"
        );
        assert!(error.message.starts_with(&due), "{}", error.message);
        assert!(!error.message.contains("Topology") && !error.message.contains('{'), "{}", error.message);
    }

    #[test]
    fn what_is_wrong_for_good_is_told_from_what_passes() {
        let member = || one(doc! { "setName": "rs1", "primary": "b:2" });
        let cases = [
            (one(doc! { "isWritablePrimary": true }), Some("rs0"), Some(Code::UnsuitableServer), "standalone"),
            (member(), Some("rs0"), Some(Code::InvalidConfig), "write replicaSet=rs1"),
            (member(), Some("rs1"), None, "b:2: that name must be reachable"),
            (member(), None, None, "b:2"),
            (one(doc! { "setName": "rs0" }), Some("rs0"), None, "no primary now"),
            (one(doc! { "msg": "isdbgrid" }), Some("rs0"), Some(Code::InvalidConfig), "leave replicaSet out"),
            (one(doc! { "isreplicaset": true }), Some("rs0"), None, "rs.initiate()"),
            (
                vec![("a:1".to_owned(), Told::Silent("refused".to_owned()))],
                Some("rs0"),
                None,
                "does not answer (refused)",
            ),
        ];
        for (told, wanted, code, says) in cases {
            assert_eq!(mistake(wanted, &told), code, "{told:?}");
            let sentence = sentences(wanted, &told);
            assert!(sentence.starts_with("a:1 ") && sentence.contains(says), "{sentence}");
        }
        let mut mixed = one(doc! { "isWritablePrimary": true });
        mixed.extend(one(doc! { "setName": "rs0" }));
        assert_eq!(mistake(Some("rs0"), &mixed), None, "one of them is right");
    }
}
