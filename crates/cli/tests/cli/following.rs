//! `annals log tail` and `annals record watch` across a restart of their server.

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Stdio};

use serde_json::Value;

use crate::process::{Server, annals, signal};
use crate::run::{folder, run};

struct Following {
    process: Child,
    out: Lines<BufReader<ChildStdout>>,
    err: Lines<BufReader<ChildStderr>>,
}

impl Following {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let mut command = annals(folder);
        let mut process =
            command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let out = BufReader::new(process.stdout.take().expect("piped")).lines();
        let err = BufReader::new(process.stderr.take().expect("piped")).lines();
        Self { process, out, err }
    }

    fn next(&mut self) -> Value {
        serde_json::from_str(&self.out.next().expect("a line").expect("text")).expect("JSON")
    }

    /// Waits until it says this on standard error.
    fn wait_until_it_says(&mut self, what: &str) {
        let said = self.err.find_map(|line| line.ok().filter(|line| line.contains(what)));
        assert!(said.is_some(), "it ended without {what:?}");
    }

    /// Ends it by Ctrl-C.
    fn interrupt(mut self) {
        signal("INT", self.process.id());
        assert_eq!(self.process.wait().expect("it ends").code(), Some(0));
    }
}

fn restarted(folder: &Path, url: &str) -> Server {
    let mut command = annals(folder);
    command.args(["serve", "--dev", "--listen", url.strip_prefix("http://").expect("an address")]);
    Server::of(command)
}

#[test]
fn a_tail_reconnects_to_its_server_and_repeats_and_skips_nothing() {
    let folder = folder();
    let server = Server::start(folder.path());
    let url = server.url.clone();
    let commit = |id: &str| {
        run(folder.path(), &["commit", "--server", &url, "--aggregate", &format!("order/{id}"), "--type", "t"]).ok()
    };
    commit("o-1");
    let mut tail = Following::start(folder.path(), &["log", "tail", "--server", &url]);
    assert_eq!(tail.next()["sequence_number"], 0);
    server.kill();
    tail.wait_until_it_says("resuming at sequence number 1");
    let _server = restarted(folder.path(), &url);
    commit("o-2");
    assert_eq!(tail.next()["sequence_number"], 1);
    tail.wait_until_it_says("the server responds again");
    tail.interrupt();
}

#[test]
fn a_watch_reconnects_to_its_server_and_repeats_and_skips_nothing() {
    let folder = folder();
    let server = Server::start(folder.path());
    let url = server.url.clone();
    let record = |arguments: &[&str]| run(folder.path(), &[&["record", "--server", &url], arguments].concat()).ok();
    record(&["declare", "orders", "--feed"]);
    record(&["insert", "orders", "--document", "{\"_id\": \"o-1\"}"]);
    let mut watch = Following::start(folder.path(), &["record", "watch", "orders", "--server", &url]);
    let first = watch.next();
    server.kill();
    watch.wait_until_it_says("resuming after change");
    let _server = restarted(folder.path(), &url);
    record(&["insert", "orders", "--document", "{\"_id\": \"o-2\"}"]);
    assert_ne!(watch.next(), first);
    watch.interrupt();
}

#[test]
fn a_tail_of_a_server_that_was_never_there_is_refused() {
    let folder = folder();
    run(folder.path(), &["log", "tail", "--server", "http://127.0.0.1:1"]).refused("unreachable", 5);
}
