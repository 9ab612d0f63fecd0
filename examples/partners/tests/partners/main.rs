//! Both parties as processes, one of which is killed and started again in the middle.

use std::collections::BTreeSet;
use std::process::Command;

use annals::{DEFAULT_SCOPE, DEFAULT_TENANT};
use annals_example_partners::{Books, Role};

const ORDERS: usize = 30;

#[tokio::test(flavor = "multi_thread")]
async fn two_parties_one_of_which_is_killed_end_with_equal_books() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_partners"));
    command.args(["--orders", &ORDERS.to_string(), "--folder"]).arg(folder.path());
    let ran = tokio::task::spawn_blocking(move || command.output()).await.expect("it ends").expect("it runs");
    let said = String::from_utf8(ran.stdout).expect("text");
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    for line in ["the supplier is killed", "the supplier is started again", "the books are equal"] {
        assert!(said.contains(line), "{said}");
    }
    // What the program says is held against the stores that it leaves behind.
    let mut books = Vec::new();
    for role in [Role::Shop, Role::Supplier] {
        let url = format!("embedded:{}", folder.path().join(role.name()).display());
        let store = annals::open(&url).await.expect("a store");
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("a log");
        books.push(Books::read(&*log, role).await.expect("books"));
        store.close().await;
    }
    assert_eq!(books[0], books[1]);
    for kind in ["order", "invoice"] {
        let ids: BTreeSet<_> = books[0].of(kind).map(|(_, id, amount)| (id.clone(), *amount)).collect();
        assert_eq!((ids.len(), books[0].of(kind).count()), (ORDERS, ORDERS), "each {kind} is there once");
    }
}
