//! The folder of the demo, and what `--fresh` removes.

use std::fs;
use std::io::ErrorKind;

use annals::{Code, Data, NewCommit, NewEvent};
use annals_example_execution::{DemoFolder, FolderError};

async fn with_an_event(folder: &DemoFolder) {
    let store = annals::open(&folder.store_url()).await.expect("opens");
    let log = store.log("default", "default").expect("always there");
    log.commit(NewCommit::new("a", "1").event(NewEvent::new("t", Data::empty()))).await.expect("is taken");
    store.close().await;
}

async fn head(folder: &DemoFolder) -> u64 {
    let store = annals::open(&folder.store_url()).await.expect("opens");
    let head = store.log("default", "default").expect("always there").head().await.expect("can be read");
    store.close().await;
    head
}

#[tokio::test]
async fn a_store_stays_until_a_fresh_start_which_removes_nothing_else() {
    let parent = tempfile::tempdir().expect("a folder");
    let path = parent.path().join("new/annals-demo");
    let folder = DemoFolder::claim(&path, false).await.expect("is made");
    with_an_event(&folder).await;
    fs::write(path.join("notes.txt"), "mine").expect("can be written");
    drop(folder);
    let folder = DemoFolder::claim(&path, false).await.expect("is the demo's");
    assert_eq!(head(&folder).await, 1);
    drop(folder);
    let folder = DemoFolder::claim(&path, true).await.expect("is the demo's");
    assert_eq!(head(&folder).await, 0);
    assert_eq!(fs::read_to_string(path.join("notes.txt")).expect("is still there"), "mine");
}

#[tokio::test]
async fn a_folder_with_other_things_in_it_is_not_touched() {
    let parent = tempfile::tempdir().expect("a folder");
    fs::create_dir(parent.path().join("store")).expect("can be made");
    let refused = DemoFolder::claim(parent.path(), true).await.expect_err("not the demo's");
    assert!(matches!(refused, FolderError::NotTheDemos(_)), "{refused}");
    assert!(parent.path().join("store").exists());
    assert!(!parent.path().join("demo.lock").exists());
}

#[tokio::test]
async fn a_second_demo_in_the_same_folder_is_refused_and_removes_nothing() {
    let parent = tempfile::tempdir().expect("a folder");
    let first = DemoFolder::claim(parent.path(), false).await.expect("is empty");
    with_an_event(&first).await;
    let refused = DemoFolder::claim(parent.path(), true).await.expect_err("in use");
    assert!(matches!(refused, FolderError::InUse(_)), "{refused}");
    assert_eq!(head(&first).await, 1);
}

#[tokio::test]
async fn a_store_that_another_process_has_open_is_not_removed() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = DemoFolder::claim(parent.path(), false).await.expect("is empty");
    with_an_event(&folder).await;
    let open = annals::open(&folder.store_url()).await.expect("opens");
    drop(folder);
    let refused = DemoFolder::claim(parent.path(), true).await.expect_err("in use");
    assert!(matches!(refused, FolderError::StoreInUse { .. }), "{refused}");
    let head = open.log("default", "default").expect("always there").head().await;
    assert_eq!(head.expect("can be read"), 1);
    open.close().await;
}

#[tokio::test]
async fn a_folder_that_cannot_be_used_says_why() {
    let io = |kind: ErrorKind| FolderError::Io { path: "demo-data".into(), error: kind.into() };
    for kind in [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem] {
        assert_eq!(io(kind).code(), Code::StoreReadOnly);
    }
    assert_eq!(io(ErrorKind::StorageFull).code(), Code::DiskFull);
    let parent = tempfile::tempdir().expect("a folder");
    let file = parent.path().join("demo-data");
    fs::write(&file, "no folder").expect("can be written");
    assert_eq!(DemoFolder::claim(&file, true).await.expect_err("a file").code(), Code::NotAStore);
}
