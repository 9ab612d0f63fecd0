//! The program as a person uses it: one URL says where the orders are, and everything else is the same.

use std::path::Path;
use std::process::Command;

/// What a run of the program printed, without the times.
fn orders(folder: &Path, store: &str, arguments: &[&str]) -> Result<String, String> {
    let program = env!("CARGO_BIN_EXE_orders");
    let ran = Command::new(program).current_dir(folder).args(["--store", store]).args(arguments).output();
    let ran = ran.expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text").trim_end().to_owned();
    match ran.status.success() {
        true => Ok(without_times(&text(ran.stdout))),
        false => Err(text(ran.stderr)),
    }
}

fn without_times(text: &str) -> String {
    let is_time = |word: &str| word.len() == 24 && word.ends_with('Z') && word.as_bytes()[10] == b'T';
    let lines = text.lines().map(|line| line.split(' ').filter(|word| !is_time(word)).collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("\n")
}

/// Orders are placed, paid, shipped, given up and looked at, each by a program of its own.
fn a_day(store: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |arguments: &[&str]| orders(folder.path(), store, arguments);
    let placed = "order/o-1 version 1: Placed\n  2 × tea at 350 cents\n  1 × cup at 900 cents\n  0 of 1600 cents paid";
    assert_eq!(run(&["place", "o-1", "tea*2@350", "cup*1@900"]).as_deref(), Ok(placed));
    assert!(run(&["place", "o-1", "tea*1@350"]).is_err_and(|told| told.contains("already")), "it is placed");
    assert!(run(&["pay", "o-1", "1"]).is_err_and(|told| told.contains("1600")), "that is not what is due");
    let paid = run(&["pay", "o-1", "1600", "--request-id", "p-1"]).expect("it is paid");
    assert!(paid.starts_with("order/o-1 version 2: Paid") && paid.ends_with("1600 of 1600 cents paid"), "{paid}");
    assert_eq!(run(&["pay", "o-1", "1600", "--request-id", "p-1"]), Ok(paid), "the same again pays nothing");
    assert_eq!(run(&["show", "o-1", "--version", "1"]).as_deref(), Ok(placed), "as it was");
    let shipped = run(&["ship", "o-1", "bike"]).expect("it is shipped");
    assert!(shipped.starts_with("order/o-1 version 3: Shipped"), "{shipped}");
    assert_eq!(run(&["show", "o-1"]), Ok(shipped));
    run(&["place", "o-2", "tea*1@350"]).expect("it is placed");
    let cancelled = run(&["cancel", "o-2", "too late"]).expect("it is given up");
    assert!(cancelled.starts_with("order/o-2 version 2: Cancelled"), "{cancelled}");
    let history = run(&["history", "o-1"]).expect("it is shown");
    let events: Vec<_> = history.lines().map(|line| line.split([' ', '{']).take(2).collect::<Vec<_>>()).collect();
    assert_eq!(events, [["1", "OrderPlaced"], ["2", "OrderPaid"], ["3", "OrderShipped"]]);
    assert_eq!(run(&["regenerate"]).as_deref(), Ok("2 snapshots were rebuilt"));
    assert!(run(&["show", "o-1"]).is_ok_and(|shown| shown.starts_with("order/o-1 version 3")));
}

#[test]
fn orders_are_kept_in_a_folder() {
    a_day("embedded:./orders-data");
}

/// The name of this module leaves it out where there is no MongoDB: see CONTRIBUTING.md.
mod with_mongodb {
    /// A database of its own on the server that is there for tests, until this value goes.
    struct Database {
        server: String,
        options: String,
        name: String,
    }

    impl Database {
        fn new() -> Self {
            let url = std::env::var("ANNALS_TEST_MONGODB");
            let url = url.expect("ANNALS_TEST_MONGODB names a MongoDB: cargo xtask services");
            let (server, options) = url.split_once('?').expect("a URL with the name of the replica set");
            let name = format!("orders_example_{}", std::process::id());
            Self { server: server.trim_end_matches('/').to_owned(), options: options.to_owned(), name }
        }

        fn url(&self) -> String {
            let Self { server, options, name } = self;
            format!("{server}/{name}?{options}")
        }
    }

    impl Drop for Database {
        fn drop(&mut self) {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(async {
                if let Ok(client) = mongodb::Client::with_uri_str(self.url()).await {
                    // What is left of it harms nobody.
                    let _ = client.database(&self.name).drop().await;
                }
            });
        }
    }

    #[test]
    fn orders_are_kept_in_a_database() {
        super::a_day(&Database::new().url());
    }
}
